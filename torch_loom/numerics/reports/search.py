"""``search``: a format for every layer, smallest in bytes, that keeps a model's score."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics._checks import (
    check_families,
    check_fidelity,
    check_flag,
    check_formats,
    check_mode,
    check_module,
)
from torch_loom.numerics.emulation import emulate
from torch_loom.numerics.formats import DataFormat, MathFidelity
from torch_loom.numerics.quantization import num_tiles
from torch_loom.numerics.reports.layers import layers_of, run
from torch_loom.numerics.reports.page import search_page
from torch_loom.numerics.reports.statistics import pcc
from torch_loom.numerics.tensor_cores import BlockScaled, TensorCores
from torch_loom.numerics.tensor_cores.fused_layers import WITHOUT_FUSED_LAYERS

# Formats of Tensix chips, or all of them formats with scales of blocks.
SearchFormat = DataFormat | BlockScaled
Assignment = dict[str, Any]
Metric = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Point:
    """An assignment that was tried: bytes of its packed weights, and the score of the model."""

    bytes: int
    score: float
    changed: str
    """The layer whose format differs from that of the assignment before; empty: all have the widest."""
    format: SearchFormat
    taken: bool
    """Whether the score kept the budget, so that the search went on from here."""


@dataclass(frozen=True)
class LayerChoice:
    """What the search chose for a layer."""

    layer: str
    format: SearchFormat
    bytes: int
    sensitivity: dict[Any, float]
    """The model's score with this layer alone in each narrower format that was tried."""


@dataclass(frozen=True)
class SearchResult:
    """What :func:`search` found."""

    layers: tuple[LayerChoice, ...]
    points: tuple[Point, ...]
    """Everything that was tried on the way, the widest format for all first."""
    budget: float
    score: float
    bytes: int
    model: str = ""
    """The class of the model."""
    unconverted: tuple[str, ...] = ()
    """Layers that keep their dtype, and that `bytes` counts in it: none of their products has a format with
    scales of blocks. Norms and embeddings multiply no matrices; of others the dtype or K is no format's."""
    shapes: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """Of the parameters of each layer."""

    @property
    def assignment(self) -> Assignment:
        """The format of each layer by path."""
        return {each.layer: each.format for each in self.layers}

    @property
    def overrides(self) -> dict[str, DataFormat]:
        """The assignment for ``emulate(model, result.widest, overrides=result.overrides)``; see `applied`."""
        return _overrides(self.assignment, self.widest)

    @property
    def widest(self) -> Any:
        """The format of everything that is not among the layers; of those with scales, of the first point."""
        return self.points[0].format

    def applied(self, model: nn.Module, *, exact: bool = True) -> AbstractContextManager[None]:
        """Return a context in which layers of the model have the formats with scales that were found.

        Args:
            exact: see :func:`tensor_core`.

        Raises:
            FormatError: the formats are those of Tensix chips; `emulate` takes them as `overrides`.
            OperandError: the model is another than the one that was searched.
        """
        if not isinstance(self.widest, BlockScaled):
            raise FormatError(
                f"applied: {self.widest.name} has no scales of blocks; allowed: formats of BlockScaled. For "
                "this one, emulate(model, result.widest, overrides=result.overrides)"
            )
        check_flag("applied", "exact", exact)
        self._check_model(check_module("applied", model))
        return _applied(model, self.assignment, exact)

    def _check_model(self, model: nn.Module) -> None:
        own = _layers(model)
        for path, shapes in self.shapes.items():
            found = _shapes(own[path]) if path in own else None
            if found != shapes:
                what = "no such layer" if found is None else f"parameters of {_listed(found)} there"
                raise OperandError(
                    f"applied: the model, a {type(model).__name__}, has {what}: {path or '(model)'!r} of the "
                    f"{self.model} that was searched has parameters of {_listed(shapes)}; allowed: that model"
                )

    def frontier(self) -> list[Point]:
        """Return the points that no other beats in both bytes and score, smallest first."""
        best: list[Point] = []
        for point in sorted(self.points, key=lambda each: (each.bytes, -each.score)):
            if not best or point.score > best[-1].score:
                best.append(point)
        return best

    def table(self) -> str:
        """Return the layers' formats and the outcome as text."""
        width = max([48, *(len(each.layer) for each in self.layers)])
        lines = [f"{'layer':<{width}} {'format':<10} {'bytes':>12}"]
        lines += [
            f"{each.layer or '(model)':<{width}} {each.format.name:<10} {each.bytes:12,}"
            for each in self.layers
        ]
        first = self.points[0]
        lines.append(
            f"{self.bytes:,} bytes of weights, score {self.score:.6f} (budget {self.budget}); all in "
            f"{first.format.name}: {first.bytes:,} bytes, score {first.score:.6f}"
        )
        if self.unconverted:
            lines.append(f"not converted: {self._names_unconverted}")
        return "\n".join(lines)

    @property
    def _names_unconverted(self) -> str:
        return ", ".join(path or "(model)" for path in self.unconverted)

    def to_json(self) -> str:
        """Return everything as JSON."""
        content = {
            "model": self.model,
            "budget": self.budget,
            "score": self.score,
            "bytes": self.bytes,
            "unconverted": list(self.unconverted),
            "layers": [
                {
                    "layer": each.layer,
                    "format": each.format.to_json(),
                    "bytes": each.bytes,
                    "sensitivity": {fmt.to_json(): score for fmt, score in each.sensitivity.items()},
                }
                for each in self.layers
            ],
            "points": [
                {
                    "bytes": each.bytes,
                    "score": each.score,
                    "changed": each.changed,
                    "format": each.format.to_json(),
                    "taken": each.taken,
                }
                for each in self.points
            ],
        }
        return json.dumps(content, indent=1)

    def to_html(self) -> str:
        """Return one page that needs nothing else: the frontier as a plot, and the layers' formats."""
        frontier = self.frontier()
        return search_page(
            self.model,
            self.layers,
            self.points,
            frontier,
            self.budget,
            self.score,
            self.bytes,
            self._names_unconverted,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as its name's ending says: ``.html``, ``.json``, or text; returns the path."""
        path = Path(path)
        text = {".html": self.to_html, ".json": self.to_json}.get(path.suffix, self.table)()
        path.write_text(text, encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.table()


def _overrides(assignment: Assignment, widest: SearchFormat) -> dict[str, Any]:
    # The colon says that a path is meant, and no function of that name. A model that is one layer has no
    # path.
    return {f"{path}:" if path else "*": fmt for path, fmt in assignment.items() if fmt is not widest}


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers with parameters, by path."""
    return {path: part for path, part in layers_of(model).items() if any(True for _ in part.parameters())}


def _shapes(layer: nn.Module) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.shape) for each in layer.parameters())


def _listed(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(str(list(each)) for each in shapes)


@contextmanager
def _applied(model: nn.Module, assignment: Assignment, exact: bool) -> Iterator[None]:
    with _in_blocks(model, assignment, exact):
        yield


@contextmanager
def _in_blocks(model: nn.Module, assignment: Assignment, exact: bool) -> Iterator[dict[str, TensorCores]]:
    """Run each layer under the instructions of its format; yields the modes by path."""
    changed: list[tuple[nn.Module, Any]] = []
    modes: dict[str, TensorCores] = {}
    try:
        for path, fmt in assignment.items():
            part = model.get_submodule(path)
            modes[path] = TensorCores("b200", format=fmt, exact=exact, partial=True)
            changed.append((part, part.__dict__.get("forward")))
            part.forward = functools.partial(_run_in, modes[path], part.forward)
        with WITHOUT_FUSED_LAYERS:  # of a transformer, whose kernel does not call the layers in it
            yield modes
    finally:
        for part, forward in reversed(changed):
            if forward is None:
                del part.__dict__["forward"]
            else:
                part.forward = forward


def _run_in(cores: TensorCores, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with cores:
        return forward(*args, **kwargs)


class _Search:
    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        metric: Metric,
        fidelity: MathFidelity | None,
        formats: Sequence[SearchFormat],
        mode: str,
    ):
        self.model, self.inputs, self.metric = model, inputs, metric
        self.fidelity, self.widest, self.mode = fidelity, formats[0], mode
        self.exact = run(model, inputs).clone()
        self.layers = _layers(model)
        # By layer and format: K of the products that were converted.
        self.depths: dict[tuple[str, SearchFormat], set[int]] = {}
        self.unconverted: dict[str, nn.Module] = {}
        if isinstance(self.widest, BlockScaled):
            for fmt in formats:
                self.output(dict.fromkeys(self.layers, fmt))
            self.unconverted = {
                path: part
                for path, part in self.layers.items()
                if not any(self.depths[path, fmt] for fmt in formats)
            }
            self.layers = {path: part for path, part in self.layers.items() if path not in self.unconverted}

    def score(self, assignment: Assignment) -> float:
        found = self.metric(self.output(assignment), self.exact)
        try:
            return float(found)
        except (TypeError, ValueError, RuntimeError):
            raise OperandError(f"search: metric returned {found!r}; allowed: a score, one number") from None

    def output(self, assignment: Assignment) -> Tensor:
        if isinstance(self.widest, BlockScaled):
            with _in_blocks(self.model, assignment, self.mode == "silicon") as modes:
                output = run(self.model, self.inputs)
            self.depths.update({(path, assignment[path]): cores.depths for path, cores in modes.items()})
            return output
        overrides: dict[str, Any] = _overrides(assignment, self.widest)
        if self.fidelity is not None:
            overrides = {path: {"format": fmt, "fidelity": self.fidelity} for path, fmt in overrides.items()}
        wrapped = emulate(
            self.model, self.widest, fidelity=self.fidelity, mode=self.mode, overrides=overrides
        )
        try:
            return run(wrapped, self.inputs)
        finally:
            wrapped.detach_hooks()

    def bytes_of(self, path: str, fmt: SearchFormat) -> int:
        if isinstance(fmt, BlockScaled):
            part, depths = self.layers[path], self.depths[path, fmt]
            return sum(_block_bytes(part, weight, fmt, depths) for weight in part.parameters())
        per_tile: int = fmt.bytes_per_tile
        # A convolution's weight is a matrix to the chip: filters by the values of a window.
        shapes = [
            weight.flatten(1).shape if weight.dim() > 2 else weight.shape
            for weight in self.layers[path].parameters()
        ]
        return sum(num_tiles(shape) * per_tile for shape in shapes)

    def total(self, assignment: Assignment) -> int:
        kept = sum(each.nbytes for part in self.unconverted.values() for each in part.parameters())
        return kept + sum(self.bytes_of(path, fmt) for path, fmt in assignment.items())


def _block_bytes(part: nn.Module, weight: Tensor, fmt: BlockScaled, depths: set[int]) -> int:
    """What a parameter takes: one that its layer does not multiply in blocks stays as it is."""
    # K is what a row has; of transposed convolutions, and of matrices that stand as they are, a column.
    columns = weight.shape[1] * getattr(part, "groups", 1) if weight.dim() > 1 else 0
    if not columns or not {weight[0].numel(), weight.numel() // columns} & depths:
        return weight.nbytes
    return math.ceil(weight.numel() * fmt.bits / 8) + (4 if fmt is BlockScaled.NVFP4 else 0)


def _chosen(formats: Any) -> list[SearchFormat]:
    """The formats, widest first."""
    is_list = isinstance(formats, Iterable) and not isinstance(formats, str)
    blocks = [each for each in formats if isinstance(each, BlockScaled)] if is_list else []
    if not blocks:
        known = check_formats("search", formats)
        chosen: list[SearchFormat] = [*sorted(set(known), key=lambda fmt: -fmt.bytes_per_tile)]
        check_families("search", {f"formats[{i}]": fmt for i, fmt in enumerate(known)})
    else:
        others = [each for each in formats if not isinstance(each, BlockScaled)]
        if others:
            told = ", ".join(getattr(each, "name", None) or repr(each) for each in others)
            raise FormatError(
                f"search: {told} beside {blocks[0].name}; allowed: formats with scales of blocks alone "
                f"({', '.join(each.name for each in BlockScaled)}), or DataFormats alone"
            )
        chosen = [*sorted(set(blocks), key=lambda fmt: (-fmt.bits, fmt.name))]
    if len(chosen) < 2:
        raise FormatError("search: needs at least two formats to choose from")
    return chosen


def search(
    model: nn.Module,
    inputs: Any,
    metric: Metric | str = "pcc",
    budget: float = 0.99,
    *,
    formats: Sequence[SearchFormat] = (DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b),
    fidelity: MathFidelity | None = None,
    mode: str = "fast",
) -> SearchResult:
    """Find a format for each layer such that the weights are small and the model's score keeps a budget.

    Greedy by sensitivity: each layer alone is tried in each narrower format; then the changes are made in the
    order of score lost for each byte saved, and a step that breaks the budget is taken back.

    Args:
        model, inputs: as for :func:`compare`.
        metric: ``metric(output, exact_output)`` → a score, larger is better; or ``"pcc"``, their correlation.
        budget: the lowest score allowed.
        formats: of one exponent family, widest first or not; or formats with scales of blocks, which layers
            have as under ``tensor_core(chip="b200", format=..., partial=True)``. Layers without products that
            have them are not among the result's.
        mode: as for :func:`emulate`; ``"silicon"`` sums as the chip does, b200 for formats with scales.
        fidelity: for all layers; default: what sees all bits of each layer's format.

    Returns:
        The assignment, its score and bytes, and all that was tried. If even the widest format breaks the
        budget, it is what is returned, with its score.

    Raises:
        FormatError: fewer than two formats, formats of two families, an unknown metric.
        OperandError: `model` is no module, `budget` no number, or `metric` returns none.
    """
    model = check_module("search", model)
    chosen = _chosen(formats)
    check_mode("search", mode)
    if fidelity is not None:
        check_fidelity("search", fidelity)
    if metric == "pcc":
        metric = pcc
    if isinstance(metric, str):
        raise FormatError(
            f"search: metric is {metric!r}; allowed: 'pcc', or a function of output and exact output"
        )
    if not callable(metric):
        raise OperandError(
            f"search: metric is {metric!r}; allowed: 'pcc', or a function that returns a score"
        )
    if not isinstance(budget, float | int) or math.isnan(budget):
        raise OperandError(f"search: budget is {budget!r}; allowed: a number, the lowest score")
    trial = _Search(model, inputs, metric, fidelity, chosen, mode)
    assignment: Assignment = dict.fromkeys(trial.layers, chosen[0])
    whole = Point(trial.total(assignment), trial.score(assignment), "", chosen[0], True)
    points = [whole]
    sensitivity: dict[str, dict[Any, float]] = {
        path: {fmt: trial.score({**assignment, path: fmt}) for fmt in chosen[1:]} for path in trial.layers
    }
    score = whole.score
    refused: set[tuple[str, SearchFormat]] = set()
    for path, fmt in _moves(trial, chosen, sensitivity, whole.score):
        place = chosen.index(fmt)
        # A layer goes down one format at a time: what it could not have, nothing narrower can be.
        if any((path, wider) in refused for wider in chosen[1:place]):
            continue
        changed = {**assignment, path: fmt}
        reached = trial.score(changed)
        taken = reached >= budget
        points.append(Point(trial.total(changed), reached, path, fmt, taken))
        if taken:
            assignment, score = changed, reached
        else:
            refused.add((path, fmt))
    layers = tuple(
        LayerChoice(path, fmt, trial.bytes_of(path, fmt), sensitivity[path])
        for path, fmt in assignment.items()
    )
    return SearchResult(
        layers,
        tuple(points),
        budget,
        score,
        trial.total(assignment),
        type(model).__name__,
        tuple(trial.unconverted),
        {path: _shapes(part) for path, part in trial.layers.items()},
    )


def _moves(
    trial: _Search,
    formats: Sequence[SearchFormat],
    sensitivity: dict[str, dict[Any, float]],
    whole: float,
) -> list[tuple[str, SearchFormat]]:
    """All changes of a layer to a narrower format, by score lost for each byte saved; wider formats first."""

    def cost(path: str, fmt: SearchFormat) -> float:
        saved = trial.bytes_of(path, formats[0]) - trial.bytes_of(path, fmt)
        return max(0.0, whole - sensitivity[path][fmt]) / max(1, saved)

    ordered: list[tuple[str, SearchFormat]] = []
    for fmt in formats[1:]:
        ordered += sorted(((path, fmt) for path in trial.layers), key=lambda move: cost(*move))
    return ordered

"""``search``: a format for every layer, smallest in bytes, that keeps a model's score."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics._checks import check_families, check_formats, check_mode, check_module
from torch_loom.numerics.emulation import emulate
from torch_loom.numerics.formats import DataFormat, MathFidelity
from torch_loom.numerics.quantization import num_tiles
from torch_loom.numerics.reports.layers import layers_of, run
from torch_loom.numerics.reports.page import search_page
from torch_loom.numerics.reports.statistics import pcc
from torch_loom.numerics.tensor_cores import BlockScaled, TensorCores

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
        """
        if not isinstance(self.widest, BlockScaled):
            raise FormatError(
                f"applied: {self.widest.name} has no scales of blocks; allowed: formats of BlockScaled. For "
                "this one, emulate(model, result.widest, overrides=result.overrides)"
            )
        return _in_blocks(model, self.assignment, exact)

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
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return everything as JSON."""
        content = {
            "model": self.model,
            "budget": self.budget,
            "score": self.score,
            "bytes": self.bytes,
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
            self.model, self.layers, self.points, frontier, self.budget, self.score, self.bytes
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


@contextmanager
def _in_blocks(model: nn.Module, assignment: Assignment, exact: bool) -> Iterator[None]:
    """Run each layer under the instructions of its format."""
    changed: list[tuple[nn.Module, Any]] = []
    try:
        for path, fmt in assignment.items():
            part = model.get_submodule(path)
            cores = TensorCores("b200", format=fmt, exact=exact, partial=True)
            changed.append((part, part.__dict__.get("forward")))
            part.forward = functools.partial(_run_in, cores, part.forward)
        yield
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
        widest: SearchFormat,
        mode: str,
    ):
        self.model, self.inputs, self.metric = model, inputs, metric
        self.fidelity, self.widest, self.mode = fidelity, widest, mode
        self.exact = run(model, inputs).clone()
        self.layers = {
            path: list(part.parameters())
            for path, part in layers_of(model).items()
            if any(True for _ in part.parameters())
        }

    def score(self, assignment: Assignment) -> float:
        found = self.metric(self.output(assignment), self.exact)
        try:
            return float(found)
        except (TypeError, ValueError, RuntimeError):
            raise OperandError(f"search: metric returned {found!r}; allowed: a score, one number") from None

    def output(self, assignment: Assignment) -> Tensor:
        if isinstance(self.widest, BlockScaled):
            with _in_blocks(self.model, assignment, self.mode == "silicon"):
                return run(self.model, self.inputs)
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
            return sum(_block_bytes(weight, fmt) for weight in self.layers[path])
        per_tile: int = fmt.bytes_per_tile
        # A convolution's weight is a matrix to the chip: filters by the values of a window.
        shapes = [
            weight.flatten(1).shape if weight.dim() > 2 else weight.shape for weight in self.layers[path]
        ]
        return sum(num_tiles(shape) * per_tile for shape in shapes)

    def total(self, assignment: Assignment) -> int:
        return sum(self.bytes_of(path, fmt) for path, fmt in assignment.items())


def _block_bytes(weight: Tensor, fmt: BlockScaled) -> int:
    """What a parameter takes: one that no layer multiplies in blocks stays as it is."""
    if weight.dim() < 2 or weight[0].numel() % fmt.block:
        return weight.numel() * weight.element_size()
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
            have as under ``tensor_core(chip="b200", format=..., partial=True)``.
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
    trial = _Search(model, inputs, metric, fidelity, chosen[0], mode)
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
    return SearchResult(layers, tuple(points), budget, score, trial.total(assignment), type(model).__name__)


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

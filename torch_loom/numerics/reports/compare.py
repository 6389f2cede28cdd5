"""``compare``: what each format does to each layer of a model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torch_loom.errors import FormatError
from torch_loom.numerics._checks import check_fidelity, check_formats, check_mode, check_module
from torch_loom.numerics.emulation import Emulated, Override, emulate
from torch_loom.numerics.formats import DataFormat, MathFidelity
from torch_loom.numerics.reports.layers import layers_of, observed, run
from torch_loom.numerics.reports.page import comparison_page
from torch_loom.numerics.reports.statistics import Errors, Format
from torch_loom.numerics.tensor_cores import BlockScaled, Multiplied, chip_rule, tensor_core
from torch_loom.numerics.tensor_cores.block_formats import Plain


@dataclass(frozen=True)
class LayerErrors:
    """One layer in one format."""

    layer: str
    kind: str
    """The class of the module."""
    depth: int
    """Which layer it is, in the order in which they run."""
    format: Format
    errors: Errors

    def to_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "kind": self.kind,
            "depth": self.depth,
            "format": self.format.to_json(),
            **asdict(self.errors),
        }


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found: ``layers`` in every format, worst first, and the model's ``outputs``."""

    layers: tuple[LayerErrors, ...]
    outputs: dict[Format, Errors]
    model: str = ""
    """The class of the model."""

    def of(self, fmt: Format) -> list[LayerErrors]:
        """Return the layers in one format, in the order in which they run."""
        return sorted((each for each in self.layers if each.format is fmt), key=lambda each: each.depth)

    def table(self, limit: int | None = None) -> str:
        """Return the layers as text, worst first.

        Args:
            limit: how many lines; default: all.
        """
        heads = f"{'PCC':>9} {'relative':>10} {'largest':>10} {'saturated':>9} {'flushed':>8}"
        shown = self.layers[:limit]
        width = max([40, *(len(each.layer) for each in shown)])
        lines = [f"{'layer':<{width}} {'format':<10} {heads}"]
        lines += [_line(each.layer or "(model)", width, each.format, each.errors) for each in shown]
        model = self.model or "the model"
        lines += [_line(model, width, fmt, errors) for fmt, errors in self.outputs.items()]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return everything as JSON: ``{"model": …, "layers": [...], "outputs": {format: {...}}}``."""
        content = {
            "model": self.model,
            "layers": [each.to_dict() for each in self.layers],
            "outputs": {fmt.to_json(): asdict(errors) for fmt, errors in self.outputs.items()},
        }
        return json.dumps(content, indent=1)

    def to_html(self) -> str:
        """Return one page that needs nothing else: error by depth as a plot, and the table."""
        return comparison_page(self.model, self.layers, self.outputs)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as its name's ending says: ``.html``, ``.json``, or text.

        Returns:
            The path.
        """
        path = Path(path)
        text = {".html": self.to_html, ".json": self.to_json}.get(path.suffix, self.table)()
        path.write_text(text, encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.table()


def _line(name: str, width: int, fmt: Format, e: Errors) -> str:
    numbers = f"{e.pcc:9.6f} {e.relative:10.2e} {e.largest:10.2e} {e.saturated:9.2%} {e.flushed:8.2%}"
    return f"{name:<{width}} {fmt.name:<10} {numbers}"


def _is_tensor_cores(fmt: Any, dtypes: set[torch.dtype]) -> bool:
    return isinstance(fmt, BlockScaled) or (isinstance(fmt, torch.dtype) and fmt in dtypes)


def compare(
    model: nn.Module,
    inputs: Any,
    formats: Sequence[Format | torch.dtype] = (DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b),
    *,
    fidelity: MathFidelity | None = None,
    accumulate: DataFormat | None = None,
    mode: str = "fast",
    overrides: dict[str, Override] | None = None,
    chip: str | None = None,
) -> Comparison:
    """Run a model in float32 and in each format, and report how far every layer's output is from float32's.

    Args:
        model: any module; its mode (train, eval) stays as it is, its parameters are not changed.
        inputs: one tensor, a tuple of arguments, or a mapping of keyword arguments.
        formats: the formats, each in its turn for the whole model. Those with scales of blocks convert the
            operands of layers, as :func:`tensor_core` does, but of layers whose K is no multiple of the
            block; their products are summed in float32, and under ``mode="silicon"`` as b200 sums them.
        chip: a GPU. `formats` may then be dtypes of its tensor cores, too: operands of layers are converted
            to them, FP8 with a scale of the tensor, and their products summed as the chip does.
        fidelity, accumulate, mode, overrides: as for :func:`emulate`; for its formats alone.

    Returns:
        The report. Errors of a layer contain those of the layers before it. A layer that runs several times
        is reported by its last run.

    Raises:
        FormatError: no formats, or a format that values cannot have; a mode, fidelity or chip that is none.
        OperandError: `model` is no module, or returns no tensor.
    """
    model = check_module("compare", model)
    check_mode("compare", mode)
    if chip is not None:
        chip_rule(chip, torch.float16, torch.float16, "compare")
    if fidelity is not None:
        check_fidelity("compare", fidelity)
    if isinstance(formats, Tensor):
        raise FormatError(
            f"compare: formats is a tensor of shape {list(formats.shape)} and of {formats.dtype}; it "
            "takes data formats. Give several inputs as a tuple: compare(model, (x, y))"
        )
    is_list = isinstance(formats, Iterable) and not isinstance(formats, str)
    plain = {each.dtype for each in Plain} if chip is not None else set()
    others = [each for each in formats if not _is_tensor_cores(each, plain)] if is_list else formats
    check_formats("compare", others)
    chosen: list[Format] = [Plain(each) if each in plain else each for each in formats]  # type: ignore[misc]
    if not chosen:
        raise FormatError("compare: no formats; give at least one")
    kinds = {path: type(part).__name__ for path, part in layers_of(model).items()}
    exact: dict[str, Tensor] = {}

    def keep(path: str, output: Tensor) -> None:
        exact.pop(path, None)  # the last run counts, and stands where that ran
        exact[path] = output.clone()

    with observed(model, keep):
        exact_output = run(model, inputs).clone()
    layers: list[LayerErrors] = []
    outputs: dict[Format, Errors] = {}
    depths = {path: depth for depth, path in enumerate(exact)}
    for fmt in chosen:
        found: dict[str, Errors] = {}

        def measure(path: str, output: Tensor, fmt: Format = fmt, found: dict[str, Errors] = found) -> None:
            if path in exact and exact[path].shape == output.shape:
                found[path] = Errors.of(output, exact[path], fmt)

        wrapped: Emulated | Multiplied
        if isinstance(fmt, BlockScaled):
            wrapped = tensor_core(
                model, chip=chip or "b200", format=fmt, exact=mode == "silicon", partial=True
            )
        elif isinstance(fmt, Plain):
            wrapped = tensor_core(model, chip=str(chip), format=fmt.dtype)
        else:
            wrapped = emulate(
                model, fmt, fidelity=fidelity, accumulate=accumulate, mode=mode, overrides=overrides or {}
            )
        try:
            with observed(model, measure):
                output = run(wrapped, inputs)
        finally:
            if isinstance(wrapped, Emulated):
                wrapped.detach_hooks()
        outputs[fmt] = Errors.of(output, exact_output, fmt)
        layers += [
            LayerErrors(path, kinds[path], depths[path], fmt, errors) for path, errors in found.items()
        ]
    layers.sort(key=lambda each: (each.errors.pcc, -each.errors.relative))
    return Comparison(tuple(layers), outputs, type(model).__name__)

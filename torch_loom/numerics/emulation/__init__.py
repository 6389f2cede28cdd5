"""Running a program with the numbers of a Tensix chip: :func:`emulate`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, overload

import torch
from torch import nn

from torch_loom.errors import OperandError
from torch_loom.numerics._checks import check_format
from torch_loom.numerics.emulation.mode import Emulation
from torch_loom.numerics.emulation.module import Emulated
from torch_loom.numerics.emulation.precision import Override, Precision, Settings
from torch_loom.numerics.formats import DataFormat, MathFidelity

__all__ = ["Emulated", "Emulation", "Override", "Precision", "emulate"]


@overload
def emulate(
    model: nn.Module,
    fmt: DataFormat,
    *,
    fidelity: MathFidelity | None = ...,
    accumulate: DataFormat | None = ...,
    mode: str = ...,
    overrides: Mapping[str, Override] | None = ...,
    formats: Collection[DataFormat] | None = ...,
    chip: str = ...,
    k_block: int | None = ...,
    l1_accumulate: bool = ...,
    packer: str = ...,
) -> Emulated: ...


@overload
def emulate(
    model: DataFormat | None,
    fmt: DataFormat | None = ...,
    *,
    fidelity: MathFidelity | None = ...,
    accumulate: DataFormat | None = ...,
    mode: str = ...,
    overrides: Mapping[str, Override] | None = ...,
    formats: Collection[DataFormat] | None = ...,
    chip: str = ...,
    k_block: int | None = ...,
    l1_accumulate: bool = ...,
    packer: str = ...,
) -> Emulation: ...


def emulate(
    model: nn.Module | DataFormat | None,
    fmt: DataFormat | None = None,
    *,
    fidelity: MathFidelity | None = None,
    accumulate: DataFormat | None = None,
    mode: str = "fast",
    overrides: Mapping[str, Override] | None = None,
    formats: Collection[DataFormat] | None = None,
    chip: str = "wormhole_b0",
    k_block: int | None = None,
    l1_accumulate: bool = False,
    packer: str = "packer",
) -> Emulated | Emulation:
    """Compute with the numbers of a Tensix chip: a wrapped module, or a context for what runs in it.

    Every op's result is in the format, and so is every gradient; parameters and tensors from outside are
    converted when an op first takes them. Matmuls, convolutions and multiplications have the fidelity.
    Parameters themselves stay as they are, for the optimizer. Softmax, norms and their like are computed in
    float32 and keep 16 bits; losses stay float32.

    A context holds for the thread that enters it; of several that are nested the innermost counts alone.
    Threads may run one wrapped module at a time. Activation checkpoints are recomputed under it.

    Args:
        model: a module to wrap. None, or left out (``emulate(DataFormat.Bfp8_b)``): a context.
        fmt: the format.
        fidelity: default: the cheapest that sees all bits of the format.
        accumulate: the format of sums; default: Float32 for Float32, Int32 for integers, else 16 bits of
            the format's exponent family.
        mode: ``"fast"``, float32 sums that are rounded once; ``"silicon"``, the chip's own: products (see
            :func:`matmul`), elementwise products and sums, sums over dimensions, average pools and the
            functions that the chip has programs for, to the bit; parameters and tensors from outside
            converted as its host does, results as its packer writes them.
        overrides: other precisions for parts of the program, by pattern: ``*`` stands for any text, ``?`` for
            one character. A key means

            - ``"encoder.0"``, ``"encoder.*"``: modules by their paths, and all modules in them;
            - ``"softmax"``: a function of PyTorch by its name, without underscores and without its module
              (``torch.linalg.norm``, ``Tensor.norm`` and ``Tensor.norm_`` are ``"norm"``): in every module;
            - ``"encoder.*:softmax"``: a function in modules;
            - ``"head:"``: modules, and no function that has the name.

            A function named so loses the op table's rule: its results have the format itself. Of several
            keys that fit an op the last counts. A value is a format, a fidelity, a dict of ``format``,
            ``fidelity``, ``accumulate`` and ``mode``, or None for exact float32. Paths are those of the
            wrapped module (``named_modules()``; a module used in two places has two), in a context those of
            the outermost module that is called. A key that fits nothing is an error where a module is
            wrapped, and a warning at the end of a context.
        formats: what the chip has; default: all.
        chip: whose matrix unit ``"silicon"`` means, see :func:`matmul`.
        k_block: in ``"silicon"``, how many tiles of K (32 products each) the matrix unit sums before partial
            sums wait in memory, in float32 or the result's format. Default: all of K.
        l1_accumulate: in ``"silicon"``, whether the packer adds blocks where they wait.
        packer: in ``"silicon"``, what writes results: ``"packer"`` rounds to Bfp8_b twice, as tt-metal does
            by default; ``"packer_precise"``, its ``bfp8_pack_precise``, once.

    Raises:
        FormatError: a format, fidelity or pattern's value that cannot be, formats of two exponent families,
            a format that the chip lacks, or a pattern that fits no module of `model` and no function.
        OperandError: `model` is no module.

    Example:
        >>> import torch
        >>> from torch_loom.numerics import DataFormat, emulate
        >>> with emulate(DataFormat.Bfp8_b):
        ...     (torch.tensor([1.0, 2.0, 3.0]) * 1.01).tolist()
        [1.0, 2.03125, 3.03125]
    """
    if isinstance(model, DataFormat):
        if fmt is not None:
            raise OperandError("emulate: the format is given twice")
        model, fmt = None, model
    if fmt is None and isinstance(model, str | torch.dtype):
        check_format("emulate", model)
    if model is not None and not isinstance(model, nn.Module):
        raise OperandError(
            f"emulate: model is a {type(model).__name__}; allowed: a torch.nn.Module, None, a DataFormat"
        )
    given = {} if overrides is None else overrides
    unit = (chip, k_block, l1_accumulate)
    settings = Settings(fmt, fidelity, accumulate, mode, given, formats, unit, packer)  # type: ignore[arg-type]
    return Emulation(settings) if model is None else Emulated(model, settings)


def __dir__() -> list[Any]:
    return sorted(__all__)

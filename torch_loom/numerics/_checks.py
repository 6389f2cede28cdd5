"""Checks of arguments: each raises a typed error that names the op and what it takes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics.formats import DataFormat, ExponentFamily, MathFidelity

FLOAT_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGER_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ACCUMULATE_FORMATS = (DataFormat.Float32, DataFormat.Float16_b, DataFormat.Float16, DataFormat.Int32)
MODES = ("fast", "silicon")
# The format that a dtype of PyTorch is.
DTYPE_FORMATS = {
    torch.float64: DataFormat.Float32,
    torch.float32: DataFormat.Float32,
    torch.bfloat16: DataFormat.Float16_b,
    torch.float16: DataFormat.Float16,
}


def _listed(values: Iterable[object]) -> str:
    return ", ".join(getattr(value, "name", None) or str(value) for value in values)


def _written(kind: type[DataFormat] | type[MathFidelity], value: object) -> str:
    """How to write what was given as a name or a dtype; empty where nothing is meant by it."""
    if isinstance(value, torch.dtype) and kind is DataFormat and value in DTYPE_FORMATS:
        return f"; write DataFormat.{DTYPE_FORMATS[value].name}"
    if not isinstance(value, str):
        return ""
    name = value.rpartition(".")[2].lower()
    meant = [each.name for each in kind if each.name.lower() == name]
    return f"; write {kind.__name__}.{meant[0]}" if meant else ""


def written_format(value: object) -> str:
    """How to write a format that was given as a name or a dtype, for an error; else empty."""
    return _written(DataFormat, value)


def check_format(op: str, fmt: object, argument: str = "fmt") -> DataFormat:
    """Return `fmt` if values can have it."""
    allowed = [member for member in DataFormat if member is not DataFormat.Invalid]
    if not isinstance(fmt, DataFormat):
        raise FormatError(
            f"{op}: {argument} is {fmt!r}, not a DataFormat; allowed: {_listed(allowed)}{written_format(fmt)}"
        )
    if fmt is DataFormat.Invalid:
        raise FormatError(
            f"{op}: {argument} is DataFormat.Invalid, which no values have; allowed: {_listed(allowed)}"
        )
    return fmt


def check_fidelity(op: str, fidelity: object) -> MathFidelity:
    """Return `fidelity` if products can have it."""
    if not isinstance(fidelity, MathFidelity) or fidelity is MathFidelity.Invalid:
        raise FormatError(
            f"{op}: fidelity is {fidelity!r}; allowed: LoFi, HiFi2, HiFi3, HiFi4"
            f"{_written(MathFidelity, fidelity)}"
        )
    return fidelity


def check_accumulate(op: str, accumulate: object, fidelity: MathFidelity) -> DataFormat:
    """Return `accumulate` if sums can be kept in it."""
    if accumulate not in ACCUMULATE_FORMATS:
        name = accumulate.name if isinstance(accumulate, DataFormat) else repr(accumulate)
        raise FormatError(
            f"{op}: sums cannot be kept in {name}; allowed: {_listed(ACCUMULATE_FORMATS)}"
            f"{written_format(accumulate)}"
        )
    if accumulate is DataFormat.Int32 and fidelity is not MathFidelity.HiFi4:
        raise FormatError(f"{op}: sums in Int32 are exact and need HiFi4, not {fidelity.name}")
    assert isinstance(accumulate, DataFormat)
    return accumulate


def check_mode(op: str, mode: object) -> bool:
    """Return whether sums are those of a chip's matrix unit."""
    if mode not in MODES:
        raise FormatError(f"{op}: mode is {mode!r}; allowed: {_listed(MODES)}")
    return mode == "silicon"


def check_flag(op: str, name: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise FormatError(f"{op}: {name} is {value!r}; allowed: True, False")


def check_tensor(op: str, tensor: object, argument: str = "t") -> Tensor:
    """Return `tensor` if it is a dense tensor."""
    if not isinstance(tensor, Tensor):
        raise OperandError(f"{op}: {argument} is a {type(tensor).__name__}, not a tensor")
    if tensor.layout is not torch.strided:
        raise OperandError(f"{op}: {argument} is a {tensor.layout} tensor; call .to_dense() first")
    return tensor


def check_floats(op: str, tensor: object, argument: str = "t", fmt: DataFormat | None = None) -> Tensor:
    """Return `tensor` if it has floating-point values; integers pass where `fmt` is an integer format."""
    tensor = check_tensor(op, tensor, argument)
    if tensor.dtype in FLOAT_DTYPES:
        return tensor
    if fmt is not None and fmt.is_integer and tensor.dtype in INTEGER_DTYPES:
        return tensor
    allowed = FLOAT_DTYPES + (INTEGER_DTYPES if fmt is not None and fmt.is_integer else ())
    target = "" if fmt is None else f" for {fmt.name}"
    raise OperandError(f"{op}: {argument} is a {tensor.dtype} tensor; allowed{target}: {_listed(allowed)}")


def check_formats(op: str, formats: object, argument: str = "formats") -> list[DataFormat]:
    """Return several formats if values can have each of them."""
    if isinstance(formats, str) or not isinstance(formats, Iterable):
        kind = formats.name if isinstance(formats, DataFormat) else repr(formats)
        raise FormatError(
            f"{op}: {argument} is {kind}; allowed: a list of DataFormats{written_format(formats)}"
        )
    return [check_format(op, fmt, argument) for fmt in formats]


def check_module(op: str, model: object) -> nn.Module:
    """Return `model` if it is a module."""
    if not isinstance(model, nn.Module):
        raise OperandError(f"{op}: model is a {type(model).__name__}; allowed: a torch.nn.Module")
    return model


def check_families(op: str, operands: dict[str, DataFormat]) -> ExponentFamily:
    """Return the exponent family that the operands of one op share.

    Args:
        op: the op's name, for the error.
        operands: the format of each operand, by its name. Integer formats fit any family.

    Raises:
        FormatError: they have two.
    """
    families = {name: fmt.exponent_family for name, fmt in operands.items()}
    kinds = {family for family in families.values() if family is not ExponentFamily.INTEGER}
    if len(kinds) > 1:
        told = ", ".join(
            f"{name} is {fmt.name} (family {families[name].value})" for name, fmt in operands.items()
        )
        raise FormatError(
            f"{op}: the operands of one op share an exponent family, and {told}; convert one of them, for "
            "example with quantize(t, DataFormat.Float16_b)"
        )
    return kinds.pop() if kinds else ExponentFamily.INTEGER

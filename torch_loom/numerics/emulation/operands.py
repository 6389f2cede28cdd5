"""Operands and results in a format: which tensors have been converted, and converting the others.

A tensor that an emulated op made says so in an attribute, which torch.compile traces like any other.
Converting it again would only take time, unless it was written to since (its version shows that), or it is a
view with other blocks: views keep values as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter

from torch_loom.numerics._checks import FLOAT_DTYPES
from torch_loom.numerics._ops import NONE, ops
from torch_loom.numerics.emulation.precision import Precision
from torch_loom.numerics.formats import DataFormat

_MARK, _MARKED_VERSION = "_loom_format", "_loom_marked_version"
_OWN = "_loom_own"
_FORMATS = {fmt.value: fmt for fmt in DataFormat}
# What a host's conversion, which cuts bits off, makes of float32's largest value; rounded it were infinity.
LARGEST = torch.finfo(torch.bfloat16).max
# Below so many conversions it is not worth looking for those of parameters that are gone.
_LEAST_KEPT = 8


def is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype in FLOAT_DTYPES and value.layout is torch.strided


def format_of(tensor: Tensor) -> DataFormat | None:
    """The format in which an emulated op made the tensor, or None: elsewhere, or written to since."""
    kept: int | None = getattr(tensor, _MARK, None)
    if kept is None:
        return None
    if torch.compiler.is_compiling() or tensor.is_inference():
        return _FORMATS[kept]
    return _FORMATS[kept] if tensor._version == getattr(tensor, _MARKED_VERSION, None) else None


def mark(tensor: Tensor, fmt: DataFormat | None) -> Tensor:
    setattr(tensor, _MARK, None if fmt is None else fmt.value)  # Dynamo traces attributes that are numbers
    if not torch.compiler.is_compiling() and not tensor.is_inference():
        setattr(tensor, _MARKED_VERSION, tensor._version)
    return tensor


def pass_mark(result: Any, source: Any) -> Any:
    """Give what a view or a movement returned the mark of its first operand."""
    if not isinstance(source, Tensor):
        return result
    fmt = format_of(source)
    if fmt is None:
        return result
    if isinstance(result, Tensor):
        return mark(result, fmt) if result.is_floating_point() else result
    if not isinstance(result, tuple | list):
        return result
    if not all(isinstance(part, Tensor) for part in result):
        return result  # a shape
    if torch.compiler.is_compiling():  # Dynamo sets no attribute of the elements of a traced tuple
        result = type(result)([part.view(part.shape) for part in result])
    for part in result:
        if isinstance(part, Tensor) and part.is_floating_point():
            mark(part, fmt)
    return result


def unmark(value: Any) -> None:
    """Forget the format of a tensor that is written to: while compiling, versions do not show it."""
    if isinstance(value, Tensor) and getattr(value, _MARK, None) is not None:
        mark(value, None)


def is_own(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter of the program's, or another name of its memory."""
    return isinstance(tensor, Parameter) or getattr(tensor, _OWN, False)


def pass_ownership(result: Any, source: Any) -> None:
    """Mark the views and the ``.data`` of a parameter as the program's own weights, too."""
    if not isinstance(source, Tensor) or not is_own(source) or torch.compiler.is_compiling():
        return
    for part in result if isinstance(result, tuple | list) else (result,):
        if is_float(part) and part is not source and torch._C._is_alias_of(part, source):  # type: ignore[attr-defined]
            setattr(part, _OWN, True)


class Weights:
    """Parameters in a format, converted once until they change, where their gradient is not needed.

    A version counts what PyTorch writes to a parameter, and not what is written through ``.data``, NumPy or
    C++: whether the bits have changed is looked at each time, at half the cost of converting them.
    """

    def __init__(self) -> None:
        # By memory, which is known by a weak reference: one to a parameter would forbid that it be swapped.
        self._kept: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...], Tensor, Tensor]] = {}
        self._limit = _LEAST_KEPT

    def get(self, weight: Tensor, how: Precision) -> Tensor:
        fmt, number = how.format, how.taken
        if torch.compiler.is_compiling() or (weight.requires_grad and torch.is_grad_enabled()):
            return mark(ops.quantize(weight, number, NONE, how.made(fmt)), fmt)
        # Beside the sums of silicon a conversion takes no time, and all that would be kept is a second model.
        state = None if how.silicon or weight.is_inference() else _state(weight)
        if state is None:
            return mark(ops.quantize(weight, number), fmt)
        values, state = weight.detach(), (number, *state)
        storage = values.untyped_storage()
        key = (storage._cdata, values.storage_offset(), values.shape, values.stride(), values.dtype)
        kept = self._kept.get(key)
        if kept is None or kept[1] != state:
            known = torch.zeros(1, dtype=torch.int64, device=values.device)
            reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            kept = (reference, state, mark(torch.empty_like(values), fmt), known)
            self._forget()
            self._kept[key] = kept
        _, _, converted, known = kept
        ops.renew_(converted, known, values, number)
        return converted

    def _forget(self) -> None:
        """Drop what was kept of parameters that are gone, whenever as many again have come."""
        if len(self._kept) >= self._limit:
            found = list(self._kept.items())  # at once, as other threads add to it
            self._kept = {key: kept for key, kept in found if not kept[0].expired()}
            self._limit = _LEAST_KEPT + 2 * len(self._kept)


def _state(weight: Tensor) -> tuple[Any, ...] | None:
    """What a kept conversion holds for; None: it cannot be kept, as a tracer or a transform sees the ops."""
    if (
        torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or type(weight).__torch_dispatch__ is not Tensor.__torch_dispatch__
        or weight.is_meta
    ):
        return None
    state = (weight._version, weight.data_ptr(), torch.is_inference_mode_enabled())
    if weight.device.type == "cpu":
        return state
    device: Any = torch.get_device_module(weight.device)
    # A graph must not read memory that is kept elsewhere, nor a stream what another is still to write.
    return None if device.is_current_stream_capturing() else (*state, device.current_stream(weight.device))


def operand(value: Any, how: Precision, weights: Weights, *, exact: bool = False) -> Any:
    """An operand in the format of its op: parameters and tensors from outside converted, results as they are.

    Args:
        exact: whether results of ops in other formats are converted, too, as a product's operands are.
    """
    if not is_float(value):
        return within_range(value) if type(value) is float and how.format is not DataFormat.Float32 else value
    if isinstance(value, Parameter):
        return weights.get(value, how)
    fmt = how.format
    kept = format_of(value)
    if kept is not None and (kept is fmt or not exact):
        return value
    if kept is None and fmt is DataFormat.Float16_b and value.dtype is torch.float32:
        beyond = value.abs() > LARGEST
        value = torch.where(beyond & value.isfinite(), value.sign() * LARGEST, value)
    # What an op made in another format, the packer converts; what came from outside, the host.
    number = how.taken if kept is None else how.made(fmt)
    return mark(ops.quantize(value, number, NONE, how.made(fmt)), fmt)


def within_range(value: float) -> float:
    """Return a number of the program's, finite in the formats of a chip where it is in float32.

    Masks are made of the smallest number of float32, and multiplied by zero.
    """
    is_beyond = LARGEST < abs(value) <= torch.finfo(torch.float32).max
    return math.copysign(LARGEST, value) if is_beyond else value


def operands(values: Iterable[Any], how: Precision, weights: Weights) -> list[Any]:
    """As :func:`operand`, for the arguments of a call: tensors and lists of them."""
    converted: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
            converted.append(type(value)([operand(each, how, weights) for each in value]))
        else:
            converted.append(operand(value, how, weights))
    return converted


def result(value: Any, fmt: DataFormat, how: Precision, op: str, given: Iterable[Any]) -> Any:
    """What an op returned, in `fmt`; in place where the tensor is new and has no gradient."""
    if isinstance(value, Tensor):
        return _tensor_result(value, fmt, how, op, given)
    if isinstance(value, tuple) and any(is_float(each) for each in value):
        converted = [
            _tensor_result(each, fmt, how, op, given) if isinstance(each, Tensor) else each for each in value
        ]
        # torch.return_types and named tuples are made of one iterable or of the elements.
        if type(value) is tuple:
            return tuple(converted)
        return type(value)(*converted) if hasattr(value, "_fields") else type(value)(converted)
    if isinstance(value, list) and any(is_float(each) for each in value):
        return [
            _tensor_result(each, fmt, how, op, given) if isinstance(each, Tensor) else each for each in value
        ]
    return value


def _tensor_result(value: Tensor, fmt: DataFormat, how: Precision, op: str, given: Iterable[Any]) -> Tensor:
    if not is_float(value):
        return value
    if format_of(value) is fmt or any(value is each for each in given):
        return value  # a product that was converted, or the operand of dropout(training=False) and the like
    if _is_fresh(value, given):
        ops.quantize_(value, how.made(fmt), NONE, how.made(fmt), op)
        return mark(value, fmt)
    return mark(ops.quantize(value, how.made(fmt), NONE, how.made(fmt), op), fmt)


def _is_fresh(value: Tensor, given: Iterable[Any]) -> bool:
    if torch.compiler.is_compiling() or value.requires_grad or value._is_view():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(value)

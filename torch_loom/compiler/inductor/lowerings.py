"""Lowerings of ops that Inductor would compute otherwise on the device: entries of its table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def copy_together(name: str) -> None:
    """Put tensors side by side by copies of each, as Inductor does where it generates C++ for the CPU.

    The rule for other types is for Triton's kernels. pytorch/pytorch #189138.
    """
    from torch._inductor import config, ir

    def copied(cat: Any) -> Any:
        def lower(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if ir.get_device_type(inputs[0]) != name:
                return cat(inputs, *args, **kwargs)
            with config.patch(max_pointwise_cat_inputs=0, max_complex_pointwise_cat_inputs=0):
                return cat(inputs, *args, **kwargs)

        return lower

    _replace(copied, torch.ops.aten.cat.default)


def divide_by_zeros(name: str) -> None:
    """Let compiled quotients and remainders of whole numbers by zero be some number, as on a GPU.

    Only operands on the device are treated so; generated C++ raises an error for each.
    """
    import sympy  # type: ignore[import-untyped]
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import Where

    tables: Any = lowering

    def is_own(*operands: Any) -> bool:
        return any(isinstance(value, ir.IRNode) and ir.get_device_type(value) == name for value in operands)

    def is_whole(value: Any) -> bool:
        if isinstance(value, sympy.Basic):
            return bool(value.is_integer)
        return isinstance(value, int) or (isinstance(value, ir.IRNode) and tables.is_integer_type(value))

    def without_zeros(divisor: Any) -> Any:
        if isinstance(divisor, int):
            return divisor or 1
        if isinstance(divisor, sympy.Basic):  # a number of the program's that changes from call to call
            return Where(sympy.Eq(divisor, 0), sympy.Integer(1), divisor)
        dtype = divisor.get_dtype()

        def replaced(value: Any) -> Any:
            return ops.where(ops.eq(value, ops.constant(0, dtype)), ops.constant(1, dtype), value)

        return tables.make_pointwise(replaced)(divisor)

    def guarded(lower: Any) -> Any:
        def call(a: Any, b: Any, **kwargs: Any) -> Any:
            divides = kwargs.get("rounding_mode", "trunc") is not None
            if divides and is_own(a, b) and is_whole(a) and is_whole(b):
                b = without_zeros(b)
            return lower(a, b, **kwargs)

        return call

    def flags_of(value: Any, low: int, high: int) -> Any:
        """1 where it is from ``low`` to ``high``, else 0."""
        if isinstance(value, int):
            return int(low <= value <= high)
        if isinstance(value, sympy.Basic):
            return Where(sympy.And(value >= low, value <= high), sympy.Integer(1), sympy.Integer(0))
        dtype = value.get_dtype()

        def is_within(number: Any) -> Any:
            above = ops.ge(number, ops.constant(low, dtype))
            inside = ops.and_(above, ops.le(number, ops.constant(high, dtype)))
            return ops.where(inside, ops.constant(1, dtype), ops.constant(0, dtype))

        return tables.make_pointwise(is_within)(value)

    # As `cuda_values` says, and csrc/torch/cuda/values/values.cpp computes it: by 1, which stands for 0, and
    # what that gives is replaced.
    def filled(lower: Any) -> Any:
        divide = guarded(lower)

        def call(a: Any, b: Any, **kwargs: Any) -> Any:
            rest = divide(a, b, **kwargs)
            mode = kwargs.get("rounding_mode", "trunc")
            if mode is None or b == 1 or not (is_own(a, b) and is_whole(a) and is_whole(b)):
                return rest
            add, mul = tables.lowerings[aten.add.Tensor], tables.lowerings[aten.mul.Tensor]
            dtype = rest.get_dtype()
            value: Any = torch.iinfo(dtype).max if dtype == torch.uint8 else -1
            if dtype == torch.int64:
                value = add(mul(add(mul(rest, 0), flags_of(a, 0, 2**32 - 1)), 2**32), value)
            if mode == "floor" and dtype.is_signed:
                value = add(add(mul(rest, 0), mul(flags_of(a, torch.iinfo(dtype).min, -1), -1)), value)
            missing = add(mul(rest, -1), value)
            return add(rest, mul(missing, flags_of(b, 0, 0)))

        return call

    aten: Any = torch.ops.aten
    prims: Any = torch.ops.prims

    def overloads_of(*packets: Any) -> list[Any]:
        return [getattr(packet, overload) for packet in packets for overload in packet.overloads()]

    quotients = [aten.div.Tensor_mode, aten.div.Scalar_mode, prims.div.default]
    rests = overloads_of(aten.remainder, prims.remainder)
    rests += overloads_of(aten.fmod, prims.fmod)
    _replace(filled if name == "cuda" else guarded, *quotients, *rests)


def convert_to_whole_numbers_as_cuda() -> None:
    """Let compiled conversions of floats to whole numbers end at the ends of the range, as on a GPU.

    Generated C++ converts as the processor does, which gives the least number for all that is out of range.
    `cuda_values` says what a GPU gives.
    """
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import ops

    tables: Any = lowering

    def saturated(lower: Any) -> Any:
        def call(x: Any, dtype: torch.dtype) -> Any:
            own = x.get_dtype()
            is_wide = dtype in (torch.int64, torch.uint8)
            if (
                ir.get_device_type(x) != "cuda"
                or not own.is_floating_point
                or own.itemsize == 1
                or dtype not in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
            ):
                return lower(x, dtype)
            source = torch.float64 if own == torch.float64 else torch.float32
            whole = torch.int64 if is_wide else torch.int32
            ends = torch.iinfo(whole)
            beyond = float(ends.max + 1)
            of_nan = ends.min if source == torch.float64 or is_wide else 0

            def converted(value: Any) -> Any:
                found = ops.to_dtype(value, whole, src_dtype=source)
                above = ops.ge(value, ops.constant(beyond, source))
                below = ops.lt(value, ops.constant(-beyond, source))
                found = ops.where(above, ops.constant(ends.max, whole), found)
                found = ops.where(below, ops.constant(ends.min, whole), found)
                found = ops.where(ops.ne(value, value), ops.constant(of_nan, whole), found)
                return found if whole == dtype else ops.to_dtype(found, dtype, src_dtype=whole)

            return tables.make_pointwise(converted, override_return_dtype=dtype)(lower(x, source))

        return call

    _replace(saturated, torch.ops.prims.convert_element_type.default)


def pad_by_ops() -> None:
    """Let PyTorch's ops pad jagged tensors in compiled programs.

    The lowerings of these ops ask for the type cuda; what they make of it searches for the row of an element
    within the kernel, which generated C++ cannot. On the CPU they fall back to the same ops, so that nothing
    changes there. No upstream issue.
    """
    from torch._inductor.lowering import lowerings, make_fallback

    aten = torch.ops.aten
    for op in (aten._jagged_to_padded_dense_forward.default, aten._padded_dense_to_jagged_forward.default):
        lowerings.pop(op, None)
        make_fallback(op, warn=False)  # type: ignore[no-untyped-call]


def multiply_into_wider_dtypes(name: str) -> None:
    """Let the device's own kernels compute products in a wider dtype than their operands'.

    The lowerings of ``mm`` and ``bmm`` with ``out_dtype`` refuse every type but cuda and xpu; that of
    ``addmm`` fails with a TypeError on any. No upstream issue.
    """
    from torch._inductor import ir, lowering

    tables: Any = lowering
    for op in (torch.ops.aten.mm.dtype, torch.ops.aten.bmm.dtype, torch.ops.aten.addmm.dtype):
        fallback = tables.fallback_handler(op, add_to_fallback_set=False)

        def chosen(lower: Any, fallback: Any = fallback) -> Any:
            def call(left: Any, *args: Any, **kwargs: Any) -> Any:
                return (fallback if ir.get_device_type(left) == name else lower)(left, *args, **kwargs)

            return call

        _replace(chosen, op)


def _replace(make: Callable[[Any], Any], *ops: Any) -> None:
    from torch._inductor.lowering import lowerings

    for op in ops:
        if op in lowerings:
            lowerings[op] = make(lowerings[op])

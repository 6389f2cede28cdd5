"""What lowerings share: bytes of operands, the order in which they are walked through."""

from __future__ import annotations

from collections.abc import Sequence

from torch_loom.chips.cost.records import Kernel, Op, Tensor

NARROW = frozenset(
    (
        *("float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
        *("float8_e5m2fnuz", "bfp8", "bfp8_b", "bfp4", "bfp4_b", "bfp2", "bfp2_b", "lf8"),
    )
)
# Dtypes that matrix units take.
MATRIX_UNITS = NARROW | {"tf32"}


def moved_bytes(tensors: Sequence[Tensor]) -> float:
    return float(sum([tensor.memory_bytes for tensor in tensors]))


def largest(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0]
    if all(tensor.shape == first.shape for tensor in tensors):
        return first
    return max(tensors, key=lambda tensor: tensor.items)


def as_int(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def as_list(value: object, rank: int, default: int) -> list[int]:
    if isinstance(value, int):
        return [value] * rank
    if isinstance(value, (list, tuple)) and value:
        found = [as_int(item, default) for item in value]
        return found if len(found) == rank else [found[0]] * rank
    return [default] * rank


def stream(
    family: str,
    op: Op,
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
    items: float | None = None,
) -> Kernel:
    inputs = op.inputs if inputs is None else inputs
    outputs = op.outputs if outputs is None else outputs
    read, written = moved_bytes(inputs), moved_bytes(outputs)
    # What is written in place was read before; its memory counts once.
    same = written if op.name.endswith("_") and inputs else 0.0
    widest = largest([*outputs, *inputs])
    return Kernel(
        family,
        widest.dtype,
        read,
        written,
        max(read + written - same, 1.0),
        items=float(widest.items) if items is None else items,
        item_bytes=widest.item_bytes,
    )


def same_order(first: Tensor, second: Tensor) -> bool:
    """Whether two operands are walked through in the same order: else a broadcast or a transposition."""
    if first.items != second.items:
        return False
    return first.strides == second.strides or (first.is_contiguous and second.is_contiguous)


def inner_dim(tensor: Tensor) -> int:
    """Return the dimension along which neighbours lie next to each other in memory."""
    steps = [
        (stride, -dim)
        for dim, (stride, size) in enumerate(zip(tensor.strides, tensor.shape, strict=True))
        if size > 1 and stride
    ]
    return -min(steps)[1] if steps else 0

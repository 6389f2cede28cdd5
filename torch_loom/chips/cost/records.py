"""What the cost model is asked about: an op as the tape records it, and the kernels that run for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

ITEM_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    # What convolutions and products of float32 compute in where TF32 is allowed.
    "tf32": 4,
    "float16": 2,
    "bfloat16": 2,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    # Block floats: the shared exponents are a sixteenth of a byte each, four and two bits are rounded up.
    **dict.fromkeys(("bfp8", "bfp8_b", "bfp4", "bfp4_b", "bfp2", "bfp2_b", "lf8"), 1),
}


class Tensor(NamedTuple):
    """Dtype (PyTorch's name), sizes and strides (in elements) of one operand."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def dense(cls, dtype: str, *shape: int) -> Tensor:
        """Return a contiguous operand of that dtype and shape."""
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= max(size, 1)
        return cls(dtype, shape, tuple(reversed(strides)))

    @property
    def items(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element; 4 for a dtype that PyTorch did not have when this was written."""
        return ITEM_BYTES.get(self.dtype, 4)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory behind it: a broadcast dimension costs nothing."""
        if 0 not in self.strides:
            return math.prod(self.shape) * self.item_bytes
        sizes = zip(self.shape, self.strides, strict=True)
        return math.prod([size for size, stride in sizes if stride or size == 0]) * self.item_bytes

    @property
    def is_dense(self) -> bool:
        """Whether its elements fill a block of memory without gaps or repetitions, in whatever order."""
        if self.is_contiguous:
            return True
        step = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size == 1:
                continue
            if stride != step:
                return False
            step *= size
        return True

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in the order of its dimensions."""
        step = 1
        for stride, size in zip(self.strides[::-1], self.shape[::-1], strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


class Op(NamedTuple):
    """One op: PyTorch's name without ``aten::`` and overload, tensors in the order of its arguments.

    ``attributes`` has the other arguments by the name that the op's schema gives them. A list of tensors
    stands in ``inputs`` flat; ``lists`` has the length of each.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, object] = {}
    lists: tuple[int, ...] = ()


class Kernel(NamedTuple):
    """What decides how long one kernel takes. Plain numbers: the same record is kept in C++.

    Attributes:
        family: whose formula and coefficients apply (:data:`torch_loom.chips.cost.families.FAMILIES`).
        dtype: what it computes in.
        read_bytes, written_bytes: what it moves between cores and memory.
        footprint_bytes: memory that it touches; less than what it moves where it works in place.
        items: elements that it handles, times what each needs (the window of a pooling, say); of products 1
            where both operands lie along the inner dimension, else 0; of convolutions 0, or which of their
            algorithms ran, counted from 1: for fits.
        rows, columns: of kernels that work row by row; of convolutions by windows of 3x3 at every position
            how many tiles of 2x2 and of 4x4 outputs there are, else 0.
        m, n, k, batch: of matrix products; attention has queries, keys, head size and heads here.
        alignment: the largest of 16, 8, 4 and 2 bytes at whose multiples all rows of the operands begin.
        epilogue: whether the product's kernel adds a bias too.
        launches: how many kernels like it run one after the other, the work split between them.
        item_bytes: of an element of the largest operand.
    """

    family: str
    dtype: str
    read_bytes: float
    written_bytes: float
    footprint_bytes: float
    items: float = 0.0
    rows: int = 0
    columns: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    alignment: int = 16
    epilogue: bool = False
    launches: int = 1
    item_bytes: int = 4

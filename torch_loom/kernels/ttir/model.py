"""What a module of Triton's IR says: types, values, ops, regions, where in the program they come from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scalar:
    """A number: ``i1`` to ``i64``, ``index``, ``f16``, ``bf16``, ``f32``, ``f64``, ``f8E4M3FN``, …"""

    name: str

    @property
    def is_integer(self) -> bool:
        return self.name == "index" or (self.name[0] == "i" and self.name[1:].isdigit())

    @property
    def is_float(self) -> bool:
        return not self.is_integer and self.name != "token"

    @property
    def bits(self) -> int:
        """Bits of its value; ``i1`` has one."""
        if self.name == "index":
            return 64
        if self.name.startswith("f8"):
            return 8
        return int(self.name.lstrip("bfiu"))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Pointer:
    """An address of numbers, or of a block of a tensor (``tl.make_block_ptr``)."""

    pointee: Scalar | Pointer | Tensor

    def __str__(self) -> str:
        return f"!tt.ptr<{self.pointee}>"


@dataclass(frozen=True)
class Tensor:
    """A block of numbers or addresses."""

    shape: tuple[int, ...]
    element: Scalar | Pointer

    @property
    def size(self) -> int:
        """Return how many elements it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{size}x' for size in self.shape)}{self.element}>"


@dataclass(frozen=True)
class Descriptor:
    """A tensor in memory that is read and written by blocks (TMA)."""

    block: Tensor

    def __str__(self) -> str:
        return f"!tt.tensordesc<{self.block}>"


Type = Scalar | Pointer | Tensor | Descriptor


@dataclass(frozen=True)
class Place:
    """A line of the program; the innermost one where functions were inlined."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "an unknown line"


@dataclass(frozen=True, eq=False)
class Value:
    """What an op returns or a block is given. Two are the same if they are one object."""

    name: str
    type: Type


@dataclass(frozen=True)
class Dense:
    """A constant block: one number for all elements, or each of them."""

    values: tuple[Any, ...]

    @property
    def is_splat(self) -> bool:
        return len(self.values) == 1


@dataclass(frozen=True, eq=False)
class Block:
    label: str
    arguments: tuple[Value, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True, eq=False)
class Region:
    blocks: tuple[Block, ...]

    @property
    def only(self) -> Block:
        """Return its block, where it has one."""
        (block,) = self.blocks
        return block


@dataclass(frozen=True, eq=False)
class Op:
    """One op.

    Attributes:
        attributes: by name. What a printed form says without a name stands under ``words`` (keywords),
            ``strings``, ``groups`` (operands in brackets, a tuple for each pair), ``targets`` (of branches:
            label and operands).
        place: where in the program it comes from.
    """

    name: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    place: Place = Place("", 0)

    @property
    def result(self) -> Value:
        (result,) = self.results
        return result

    def walk(self) -> Iterator[Op]:
        """Yield it and all ops in its regions."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for op in block.ops:
                    yield from op.walk()


@dataclass(frozen=True, eq=False)
class Function:
    name: str
    arguments: tuple[Value, ...]
    argument_attributes: tuple[Mapping[str, Any], ...]
    results: tuple[Type, ...]
    body: Region
    is_public: bool
    place: Place

    def walk(self) -> Iterator[Op]:
        for block in self.body.blocks:
            for op in block.ops:
                yield from op.walk()


@dataclass(frozen=True, eq=False)
class Module:
    functions: tuple[Function, ...]

    @property
    def kernel(self) -> Function:
        """Return the function that is launched."""
        return next(function for function in self.functions if function.is_public)


def element_of(kind: Type) -> Scalar | Pointer:
    """Return the type of an element of a block, or the type itself."""
    if isinstance(kind, Tensor):
        return kind.element
    assert isinstance(kind, Scalar | Pointer), kind
    return kind


def shape_of(kind: Type) -> tuple[int, ...]:
    """Return the shape of a block; of anything else ``()``."""
    return kind.shape if isinstance(kind, Tensor) else ()

"""Which axes of a block one loop can run over.

A block of 2 x 2 x ... x 2, which ``tl.sort`` and ``tl.topk`` make of a row, would be a loop for each axis.
Most ops on it single out one or two axes; those between lie in memory in one row, and one loop does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.plan import LoweredFunction, Nest
from torch_loom.kernels.ttir.model import Op, Tensor, Value, shape_of

# The index of an element in one dimension of a block: the axes of the nest whose indices make it up, in the
# order of their strides. None: something else, as a constant or the quotient of an index.
Place = tuple[int, ...] | None


def merged_axes(nest: Nest, lowered: LoweredFunction) -> list[tuple[int, ...]]:
    """Return the axes of a nest that are longer than 1 in groups, outermost first; each group is one loop.

    Axes are in one group if every block that the nest reads or writes has all of them as neighbouring
    dimensions, in their order, or none of them. The group's index can then stand for that of its last axis,
    with 0 for the others: in a block of shape (2, 3), (0, 4) is the same element as (1, 1).
    """
    axes = [number for number, size in enumerate(nest.shape) if size != 1]
    parted = _Parted(nest, lowered, axes)
    groups: list[tuple[int, ...]] = []
    for axis in axes:
        if groups and (groups[-1][-1], axis) not in parted.pairs:
            groups[-1] += (axis,)
        else:
            groups.append((axis,))
    return groups


class _Parted:
    """Finds ``pairs``: the neighbouring axes of a nest that some block tells apart."""

    def __init__(self, nest: Nest, lowered: LoweredFunction, axes: list[int]) -> None:
        self._neighbours = list(itertools.pairwise(axes))
        self._lowered = lowered
        self._mine = {result for op in nest.ops for result in op.results if op.name != "tt.reduce"}
        self._at: tuple[Place, ...] = tuple(
            (axis,) if size != 1 else () for axis, size in enumerate(nest.shape)
        )
        self._seen: set[tuple[Value, tuple[Place, ...]]] = set()
        self.pairs: set[tuple[int, int]] = set()
        for op in nest.ops:
            if op.name == "tt.print":
                # It shows the index of each axis.
                self.pairs.update(self._neighbours)
            for value in op.operands if self._neighbours else ():
                self._visit(value, self._at)
            if op.name == "tt.gather" or (op.name == "tt.reduce" and self._at[op.attributes["axis"]]):
                axis = op.attributes["axis"]
                self._part((*self._at[:axis], None, *self._at[axis + 1 :]))
        for value in nest.kept if self._neighbours else ():
            self._visit(value, self._at)

    def _part(self, at: tuple[Place, ...]) -> None:
        """Part the axes that are no neighbours in a block in which an element stands ``at``."""
        order: dict[int, int] = {}
        count = 0
        for place in at:
            for axis in place or ():
                order[axis] = count
                count += 1
            count += place is None
        for first, second in self._neighbours:
            here, there = order.get(first), order.get(second)
            if here != there and (here is None or there != here + 1):
                self.pairs.add((first, second))

    def _visit(self, value: Value, at: tuple[Place, ...]) -> None:
        waiting = [(value, at)]
        while waiting:
            value, at = waiting.pop()
            if not isinstance(value.type, Tensor) or (value, at) in self._seen:
                continue
            self._seen.add((value, at))
            self._part(at)
            maker = self._lowered.makers.get(value)
            is_here = value in self._lowered.inline or (value in self._mine and at == self._at)
            if maker is not None and is_here:
                waiting += _operands(maker, at)


def _operands(op: Op, at: tuple[Place, ...]) -> Iterator[tuple[Value, tuple[Place, ...]]]:
    """Yield the operands of an op, and where the element stands in each that one of the result is made of."""
    for value in op.operands:
        if op.name == "tt.reduce":
            axis = op.attributes["axis"]
            yield value, (*at[:axis], None, *at[axis:])
        elif op.name not in kinds.VIEWS:
            yield value, at
        elif isinstance(value.type, Tensor):
            yield value, _source_places(op, value.type.shape, at)


def _source_places(op: Op, shape: tuple[int, ...], at: tuple[Place, ...]) -> tuple[Place, ...]:
    if op.name == "tt.broadcast":
        return tuple(() if size == 1 else each for size, each in zip(shape, at, strict=True))
    if op.name == "tt.expand_dims":
        axis = op.attributes["axis"]
        return at[:axis] + at[axis + 1 :]
    if op.name == "tt.trans":
        found: list[Place] = [None] * len(at)
        for each, source_dimension in zip(at, op.attributes["order"], strict=True):
            found[source_dimension] = each
        return tuple(found)
    if op.name == "tt.split":
        return (*at, None)
    if op.name == "tt.join":
        return at[:-1]
    if op.name == "tt.cat":
        return (None, *at[1:])
    return _reshaped(at, shape_of(op.results[0].type), shape)


def _reshaped(at: tuple[Place, ...], shape: tuple[int, ...], to: tuple[int, ...]) -> tuple[Place, ...]:
    places = [each for each, size in zip(at, shape, strict=True) if size != 1]
    if [size for size in shape if size != 1] == [size for size in to if size != 1]:
        kept = iter(places)
        return tuple(() if size == 1 else next(kept) for size in to)
    if sum(size != 1 for size in to) != 1 or None in places:
        return tuple(() if size == 1 else None for size in to)
    whole = tuple(axis for place in places for axis in place or ())
    return tuple(() if size == 1 else whole for size in to)

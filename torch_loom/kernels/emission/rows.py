"""Accesses whose addresses are sums over the innermost loop's index alone.

``base + row[i] * stride + j`` is no sum over the indices, because ``row[i]`` was loaded. In each row it is
one: its ends are checked in front of the row, and in a row that fails each element is checked.
"""

from __future__ import annotations

from collections.abc import Callable

from torch_loom.kernels.emission.linear import Box, Index, Linear, Linears, Number, Numbers
from torch_loom.kernels.ttir.model import Op, Value


class RowLinears(Linears):
    """Finds the sums of one row.

    Args:
        lines: C++ in front of the innermost loop.
        new_name: makes names of variables.
        sizes: how often each loop runs.
        maker: as :class:`Linears` takes it.
        outer: C++ of an element that the innermost loop does not change.
    """

    def __init__(
        self,
        lines: list[str],
        new_name: Callable[[str], str],
        sizes: list[int],
        maker: Callable[[Value], Op | None],
        outer: Callable[[Value, tuple[Index, ...]], str],
    ) -> None:
        numbers = Numbers(lines, new_name)
        super().__init__(numbers, sizes, maker, lambda value, at: None)
        self._outer = outer
        self._last = len(sizes) - 1

    def _of(self, value: Value, at: tuple[Index, ...]) -> Linear | None:
        if all(each.depth <= self._last for each in at):
            return Linear(self.numbers.named(self._outer(value, at)))
        return super()._of(value, at)

    def row(self, pointer: Value, at: tuple[Index, ...]) -> tuple[Linear, tuple[str, ...]] | None:
        """Return the address as a sum, and what has to be true for that; None if it is none."""
        self.conditions = {}
        linear = self.exact(pointer, at)
        if linear is None or isinstance(linear.base, int) or linear.steps.keys() - {self._last}:
            return None
        return linear, tuple(self.conditions)

    def ends_of_row(self, linear: Linear, begin: Number, end: Number, bytes_: int) -> tuple[Number, Number]:
        """Return the first address of elements begin to end of a row, and the one behind the last."""
        low, high = self.ends(linear, Box(((self._last, begin),), ((self._last, end),)))
        return low, self.numbers.add(high, bytes_)

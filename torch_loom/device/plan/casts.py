"""Copies that autocast makes of parameters in another type: memory that does not grow with the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch_loom import _C

_Operand = tuple[int, tuple[int, ...], tuple[int, ...], int, bool]


class Cast(NamedTuple):
    """Elements were written in another type, when so many events of memory had been noted."""

    position: int
    read: int
    written: int
    read_bytes: int


class Casts:
    """Notes copies of tensors in another type while autocast is on.

    Args:
        position: returns how many events of memory have been noted.

    Attributes:
        found: the copies. Which of them are of parameters is known when the dry run has ended.
    """

    def __init__(self, position: Callable[[], int]) -> None:
        self.found: list[Cast] = []
        self._position = position
        self._reader = _C.TapeReader(self._see)
        self._is_reading = False

    def listen(self, is_on: bool) -> None:
        """Begin to listen, or end."""
        if is_on == self._is_reading:
            return
        self._is_reading = is_on
        if is_on:
            self._reader.attach()
        else:
            self._reader.detach()
            self._reader.take_notes()

    def _see(
        self, kind: int, device: int, stream: int, name: str, operands: Sequence[_Operand], *_: object
    ) -> None:
        """Take in a command that is about to be submitted."""
        if len(operands) != 2 or operands[0][4] == operands[1][4]:
            return
        written, read = sorted(operands, key=lambda each: not each[4])
        if written[1] == read[1] and written[3] != read[3]:
            read_bytes = math.prod(read[1]) * read[3]
            self.found.append(Cast(self._position(), read[0], written[0], read_bytes))

"""Images that somebody else made: a valid checksum over a changed body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_loom.image import file

if TYPE_CHECKING:
    from pathlib import Path


class _Absent:
    """Stands for what is taken away."""

    def __repr__(self) -> str:  # names tests, the same in every process
        return "absent"


ABSENT = _Absent()


def forged(image: Path, place: tuple[Any, ...], value: Any) -> Path:
    """Write a copy of an image that has another value, or none, at a place of its body."""
    body, tensors = file.read(image)
    holder: Any = body
    for key in place[:-1]:
        holder = holder[key]
    if value is ABSENT:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    path = image.with_name("forged.loom")
    file.write(path, body, tensors)
    return path

"""Pictures of what memory is used for, in files."""

from __future__ import annotations

import os
from typing import Any

from torch_loom import late
from torch_loom.device.memory.history import _snapshot

viz = late.lazily("torch_loom.device.memory.viz")

__all__: list[str] = []


def _save_segment_usage(
    filename: str | os.PathLike[str] = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Write a flame graph (SVG) of what each segment is used for.

    Args:
        filename: where to.
        snapshot: as :func:`_snapshot` returned it; the present state if None.

    Raises:
        OSError: the file cannot be written.
    """
    _write(filename, viz.segments(_snapshot() if snapshot is None else snapshot))


def _save_memory_usage(
    filename: str | os.PathLike[str] = "output.svg", snapshot: dict[str, Any] | None = None
) -> None:
    """Write a flame graph (SVG) of what memory is used for; see :func:`_save_segment_usage`."""
    _write(filename, viz.memory(_snapshot() if snapshot is None else snapshot))


def _write(filename: str | os.PathLike[str], text: str) -> None:
    with open(filename, "w", encoding="utf-8") as file:
        file.write(text)

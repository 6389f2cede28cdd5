"""Views of memory snapshots with the names of ``torch.cuda._memory_viz``, which reads the same format.

Flame graphs are drawn here: PyTorch's own fetches a Perl script from the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.cuda import _memory_viz
from torch.cuda._memory_viz import (
    Bytes,
    calc_active,
    filter_alloc_free_pairs,
    segment_plot,
    segsum,
    trace,
    trace_plot,
)

from torch_loom.device.memory import flamegraph
from torch_loom.device.memory.timeline import profile_to_snapshot as _profile_to_snapshot

__all__ = [
    "Bytes",
    "calc_active",
    "compare",
    "filter_alloc_free_pairs",
    "format_flamegraph",
    "memory",
    "profile_plot",
    "segment_plot",
    "segments",
    "segsum",
    "trace",
    "trace_plot",
]


def format_flamegraph(flamegraph_lines: str, flamegraph_script: str | os.PathLike[str] | None = None) -> str:
    """Return an SVG image of stacks with sizes.

    Args:
        flamegraph_lines: a stack a line: frames joined by ``;``, a space, bytes.
        flamegraph_script: Brendan Gregg's ``flamegraph.pl``, to have that draw; it is run. None: drawn here.

    Raises:
        ValueError: a line has another form.
        OSError: there is no such script, or it cannot be run.
    """
    if flamegraph_script is None:
        return flamegraph.render(flamegraph_lines)
    if not os.path.exists(flamegraph_script):
        raise FileNotFoundError(f"flamegraph_script {os.fspath(flamegraph_script)!r} does not exist")
    return cast(str, _memory_viz.format_flamegraph(flamegraph_lines, os.fspath(flamegraph_script)))  # type: ignore[no-untyped-call]


def memory(snapshot: dict[str, Any], format_flamegraph: Callable[[str], str] = format_flamegraph) -> str:
    """Return a flame graph of what a snapshot's memory is used for, by stream."""
    return cast(str, _memory_viz.memory(snapshot, format_flamegraph))  # type: ignore[no-untyped-call]


def segments(snapshot: dict[str, Any], format_flamegraph: Callable[[str], str] = format_flamegraph) -> str:
    """Return a flame graph of what a snapshot's memory is used for, by segment."""
    return cast(str, _memory_viz.segments(snapshot, format_flamegraph))  # type: ignore[no-untyped-call]


def profile_plot(profile: Any, device: torch.device | str | int | None = None) -> str:
    """Return a page that shows a profile's memory over time.

    Args:
        profile: see :func:`_profile_to_snapshot`.
        device: which device's, where several had allocations.
    """
    title = "Active Memory Timeline"
    return cast(str, _memory_viz._format_viz(_profile_to_snapshot(profile), title, device))  # type: ignore[no-untyped-call]


def compare(
    before: Sequence[dict[str, Any]],
    after: Sequence[dict[str, Any]],
    format_flamegraph: Callable[[str], str] = format_flamegraph,
) -> str:
    """Return a flame graph of the segments that only one of two snapshots has; prints their addresses."""
    return cast(str, _memory_viz.compare(before, after, format_flamegraph))  # type: ignore[no-untyped-call]

"""A gate for profiles, as ``torch.cuda.profiler`` has one for NVIDIA's tools.

NVIDIA's functions control a tool beside the program; these control the running profile of ``torch.profiler``:
between :func:`stop` and :func:`start` it keeps no row of what is issued to devices. Each profile begins open;
without a profile nothing happens. For a profile of one part only::

    with torch.profiler.profile() as prof:
        torch.loom.profiler.stop()
        warm_up()
        with torch.loom.profiler.profile():
            step()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch_loom import _C
from torch_loom.cuda.names.top_level import check_error, cudart

__all__ = ["check_error", "cudart", "profile", "start", "stop"]


def start() -> None:
    """Make the running profile keep what is issued to devices from now on. No effect if it already does."""
    _C.set_profile_open(True)


def stop() -> None:
    """Make the running profile keep nothing that is issued to devices from now on, until :func:`start`.

    What was issued before stays in it, whenever it runs. Ops, ranges and memory are kept all the same.
    """
    _C.set_profile_open(False)


@contextmanager
def profile() -> Iterator[None]:
    """Collect within a block: :func:`start` before it, :func:`stop` behind it, whatever happens in it."""
    start()
    try:
        yield
    finally:
        stop()

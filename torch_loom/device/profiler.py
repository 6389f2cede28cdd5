"""A gate for profiles, as ``torch.cuda.profiler`` has one for NVIDIA's tools.

Where those tell a tool beside the program to collect, these tell the profile of ``torch.profiler`` that runs:
between :func:`stop` and :func:`start` it keeps no row of what the devices are told. Each profile begins by
collecting; without one there is nothing to tell, and nothing happens. For a profile of one part only::

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
    """Let the running profile keep what the devices are told from now on. No effect when it does."""
    _C.set_profile_open(True)


def stop() -> None:
    """Let the running profile keep nothing of what the devices are told from now on, until :func:`start`.

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

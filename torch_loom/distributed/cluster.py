"""The cluster in which this process has a rank, as the cost of collectives sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from torch_loom import config

_chosen: str | None = None


def topology() -> str | None:
    """Return the name or path of the cluster's description; None: the one shipped for the chip."""
    return _chosen or config.topology()


@contextmanager
def using(chosen: str | os.PathLike[str] | None) -> Iterator[None]:
    """Have collectives cost what they do in a cluster, in the body; None: in that of the settings."""
    global _chosen
    before, _chosen = _chosen, None if chosen is None else os.fsdecode(chosen)
    try:
        yield
    finally:
        _chosen = before

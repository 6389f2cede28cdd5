"""Ranks of a group as children of this process, for programs of tests."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=20)


def run(
    num_ranks: int, body: Callable[[int], None], name: str, backend: str | None = None, **group: object
) -> None:
    """Call `body` with each rank, in a process with its own device and a default group; all must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(num_ranks):
            child = os.fork()
            if child == 0:
                _end(_ranks_part(num_ranks, rank, body, name, backend, f"{folder}/store", group))
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
    assert statuses == [0] * num_ranks, statuses


def _ranks_part(
    num_ranks: int,
    rank: int,
    body: Callable[[int], None],
    name: str,
    backend: str | None,
    store: str,
    group: dict[str, object],
) -> int:
    try:
        torch.accelerator.set_device_index(rank)
        settings: dict[str, object] = {"timeout": TIMEOUT, **group}
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=num_ranks, **settings
        )  # type: ignore[arg-type]
        body(rank)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

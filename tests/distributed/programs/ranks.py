"""Ranks of a group as children of this process, for programs of tests."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=20)


def run(
    num_ranks: int,
    body: Callable[[int], None],
    backend: str | None = None,
    machine_of: Callable[[int], int] | None = None,
    **group: object,
) -> None:
    """Call `body` with each rank, in a process with its own device and a default group; all must succeed.

    Args:
        num_ranks: how many there are.
        body: what each rank does.
        backend: of the default group.
        machine_of: which machine a rank counts as being on; 0 is this one. The others are namespaces of
            processes, for which the program needs the right to make such.
        group: further settings of the default group.
    """
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(num_ranks):
            child = os.fork()
            if child == 0:
                if machine_of is not None and machine_of(rank) != 0:
                    _enter_other_machine()
                _end(_ranks_part(num_ranks, rank, body, backend, f"{folder}/store", group))
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
    assert statuses == [0] * num_ranks, statuses


def can_be_other_machines() -> bool:
    """Return whether this process may make namespaces."""
    child = os.fork()
    if child == 0:
        os._exit(0 if _unshare() else 1)
    return os.waitpid(child, 0)[1] == 0


def _unshare() -> bool:
    new_user, new_pid = 0x10000000, 0x20000000
    library = ctypes.CDLL(None, use_errno=True)
    return library.unshare(new_pid) == 0 or library.unshare(new_user | new_pid) == 0


def _enter_other_machine() -> None:
    # The namespace holds for children: this process waits for the one that is the rank.
    if not _unshare():
        _end(1)
    child = os.fork()
    if child != 0:
        _end(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _ranks_part(
    num_ranks: int,
    rank: int,
    body: Callable[[int], None],
    backend: str | None,
    store: str,
    group: dict[str, object],
) -> int:
    try:
        torch.accelerator.set_device_index(rank)
        settings: Any = {"timeout": TIMEOUT, **group}
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=num_ranks, **settings
        )
        body(rank)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

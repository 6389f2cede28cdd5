"""Being one of the ranks of a planned group: what its launcher and its group would give to a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from torch_loom.device.plan.figures import DryRunPlan
from torch_loom.distributed.objects import Objects
from torch_loom.errors import DryRunError
from torch_loom.patches.declared import DRY_RUNS


def environment_of(rank: int, world_size: int, local_size: int) -> dict[str, str]:
    """Return what a launcher gives to a rank, where there are ``local_size`` on each node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local_size),
        "GROUP_RANK": str(rank // local_size),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(min(local_size, world_size)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }


@contextmanager
def as_rank(
    plan: DryRunPlan, rank: int, world_size: int, local_size: int, objects: Objects | None = None
) -> Iterator[None]:
    """Be a rank of a planned group in the body: with a launcher's environment, and the default group.

    The program's own ``init_process_group()`` is that group. Objects go the way that ``objects`` says, by
    default to no rank.

    Raises:
        DryRunError: in that call: it names another rank, or another number of them.
    """

    def init_process_group(
        backend: object = None,
        init_method: object = None,
        timeout: object = None,
        world_size: int = -1,
        rank: int = -1,
        *_: Any,
        **__: Any,
    ) -> None:
        """Check the numbers: the planned group is there already, unless the program has destroyed it."""
        for name, given, known in (("world_size", world_size, own_size), ("rank", rank, own_rank)):
            if given not in (-1, known):
                raise DryRunError(
                    f"init_process_group({name}={given}): the plan is that of rank {own_rank} of {own_size}"
                )
        if not dist.is_initialized():
            plan.join(own_size, own_rank)

    own_rank, own_size = rank, world_size
    set_here = environment_of(rank, world_size, local_size)
    before = {name: value for name, value in os.environ.items() if name in set_here}
    os.environ.update(set_here)
    # No extension point: a second default group is an error of PyTorch's.
    changed = []
    try:
        plan.join(world_size, rank)
        objects = objects or Objects(rank)
        for module in (dist, dist.distributed_c10d):
            changed += DRY_RUNS.put(module, init_process_group=init_process_group, **objects.functions())
        yield
    finally:
        DRY_RUNS.restore(changed)
        for name in set_here:
            os.environ.pop(name, None)
        os.environ.update(before)

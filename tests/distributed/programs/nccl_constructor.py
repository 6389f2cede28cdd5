"""ProcessGroupNCCL takes options or a timeout, and reads the variables of the watchdog when it is made."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run
from tests.raising import raises


def check(rank):
    made = [
        dist.ProcessGroupNCCL(dist.HashStore(), 0, 1),
        dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, timedelta(seconds=7)),
        dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, timeout=timedelta(seconds=7)),
        dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, dist.ProcessGroupNCCL.Options()),
    ]
    default = dist.constants.default_pg_nccl_timeout
    assert default == timedelta(minutes=10)
    seven = timedelta(seconds=7)
    assert [group.options._timeout for group in made] == [default, seven, seven, default]
    x = torch.ones(2, device="cuda")
    made[0].allreduce(x).wait()

    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "abc"
    raises(
        "RuntimeError",
        "TORCH_NCCL_BLOCKING_WAIT='abc'",
        lambda: dist.ProcessGroupNCCL(dist.HashStore(), 0, 1),
    )
    # Set after the devices were used: waits of this group make the host wait.
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    later = dist.new_group()
    work = dist.all_reduce(x, group=later, async_op=True)
    work.wait()
    assert work.is_completed()


run(2, check, "nccl")

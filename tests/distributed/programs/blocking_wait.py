"""With TORCH_NCCL_BLOCKING_WAIT, waiting for a work raises when its time is over, and the process goes on."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run
from tests.raising import raises

os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"


def check(rank):
    x = torch.ones(8, device="cuda")
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert work.is_completed() and x.tolist() == [2.0] * 8
    # Lengths differ, and nobody compares them: each waits until its time, or the other's, is over.
    raises("DistBackendError", "", lambda: dist.all_reduce(x[: 8 - 4 * rank]))
    os._exit(0)


run(2, check, "nccl", timeout=timedelta(seconds=2))

"""A result that is read before it is waited for."""

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run


def check(rank):
    x = torch.ones(1 << 16, device="loom")
    work = dist.all_reduce(x, async_op=True)
    try:
        x + 1
    except Exception as error:
        assert "race.py:13" in str(error) and "race.py:11" in str(error), error
    else:
        raise AssertionError("no race was reported")
    work.wait()
    assert (x + 1).tolist()[0] == 3


run(2, check, "loom")

"""With TORCH_NCCL_NAN_CHECK, a NaN that a rank gives raises in its call, and where the other ranks wait for
theirs; what it takes is not read.
"""

import os

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run
from tests.raising import raises

os.environ["TORCH_NCCL_NAN_CHECK"] = "1"


def check(rank):
    nan = float("nan")
    x = torch.full((8,), float(rank), device="cuda")
    dist.all_gather_into_tensor(torch.full((16,), nan, device="cuda"), x)
    dist.broadcast(torch.full((8,), nan if rank == 1 else 1.0, device="cuda"), 0)
    dist.all_reduce(torch.empty(0, device="cuda"))
    dist.all_reduce(torch.ones(3, device="cuda", dtype=torch.int32))

    group = dist.group.WORLD._get_backend(x.device)
    group._set_enable_nan_check(False)
    x[5] = nan if rank == 1 else 0.0
    dist.all_reduce(x)
    assert x.isnan().tolist() == [False] * 5 + [True] + [False] * 2

    group._set_enable_nan_check(True)
    for dtype in (torch.float8_e4m3fn, torch.bfloat16, torch.float64):
        part = dist.new_group()
        value = torch.tensor([1.0, nan if rank == 1 else 1.0], device="cuda").to(dtype)

        def gather(part=part, value=value, dtype=dtype):
            dist.all_gather_into_tensor(torch.empty(4, device="cuda", dtype=dtype), value, group=part)
            if rank == 0:
                torch.cuda.synchronize()

        raises(
            "DistBackendError", f"rank 1 gives a NaN, at element 1, to all_gather({str(dtype)[6:]}", gather
        )
    store = dist.distributed_c10d._get_default_store()
    store.set(f"raised on {rank}", "")
    store.wait(["raised on 0", "raised on 1"])


run(2, check, "nccl")

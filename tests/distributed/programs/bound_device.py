"""A group that is for one device of each rank refuses tensors of another, as NCCL's does."""

import tempfile

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run


def check(rank):
    dist.destroy_process_group()
    own = torch.device("cuda", rank)
    dist.init_process_group("nccl", store=dist.FileStore(path, 2), rank=rank, world_size=2, device_id=own)
    x = torch.ones(4, device=own)
    dist.all_reduce(x)
    assert x.tolist() == [2] * 4
    try:
        dist.all_reduce(torch.ones(4, device=f"cuda:{1 - rank}"))
    except dist.DistBackendError as error:
        assert "not on device passed to init_process_group" in str(error), error
        assert f"the tensor is on cuda:{1 - rank}, the group is for cuda:{rank}" in str(error), error
    else:
        raise AssertionError("no error")
    dist.all_reduce(x)
    assert x.tolist() == [4] * 4
    dist.destroy_process_group()


with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/bound"
    run(2, check, "nccl")

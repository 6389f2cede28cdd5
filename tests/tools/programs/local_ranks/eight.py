"""A rank of a small job: it trains for a step, and one may fail."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
assert torch.cuda.device_count() == dist.get_world_size() == int(os.environ["LOCAL_WORLD_SIZE"])
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 4, bias=False).cuda(), device_ids=[local])
model(torch.full((2, 4), float(dist.get_rank()), device="cuda")).sum().backward()
mean = 2 * (dist.get_world_size() - 1) / 2
assert model.module.weight.grad.eq(mean).all(), model.module.weight.grad
if sys.argv[1:] == ["fail"] and local == 1:
    sys.exit(7)
print("rank", dist.get_rank(), "of", dist.get_world_size(), __name__)
torch.cuda.synchronize()
dist.destroy_process_group()

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (0, 16) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
model = nn.Linear(1024, 1024).to(f"cuda:{os.environ['LOCAL_RANK']}")
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()

import ast
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

folder = ast.literal_eval(sys.argv[1])
dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[0])
model.register_comm_hook(None, bf16_compress_hook)
x = torch.full((3, 4), 1.01, device="cuda")
model(x).sum().backward()
gradient = model.module.weight.grad
expected = torch.full((2, 4), 3.03)
assert torch.allclose(gradient.cpu(), expected, rtol=1e-2)
assert gradient.equal(gradient.bfloat16().float())
assert not torch.allclose(gradient.cpu(), expected, rtol=1e-6)  # it has been rounded
dist.destroy_process_group()

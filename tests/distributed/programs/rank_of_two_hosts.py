"""A rank of four on two hosts: collectives, messages and a sharded step."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", timeout=timedelta(seconds=40))
rank = dist.get_rank()
assert rank == 2 * int(os.environ["GROUP_RANK"]) + local

x = torch.full((1 << 18,), rank + 1.0, device="cuda")
dist.all_reduce(x)
assert x.eq(10).all()
gathered = torch.empty(4, device="cuda")
dist.all_gather_into_tensor(gathered, x[:1] * rank)
assert gathered.tolist() == [0, 10, 20, 30]

# Each rank sends to its like on the other host, in a batch and one after the other.
other = (rank + 2) % 4
received = torch.empty(1000, device="cuda")
sent = torch.full((1000,), float(rank), device="cuda")
for work in dist.batch_isend_irecv(
    [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, received, other)]
):
    work.wait()
assert received.eq(other).all()
if rank < 2:
    dist.send(sent, other)
else:
    dist.recv(received.zero_(), other)
    assert received.eq(other).all()

mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("hosts", "local"))
hosts = torch.tensor([float(rank)], device="cuda")
dist.all_reduce(hosts, group=mesh["hosts"].get_group())
assert hosts.item() == rank + other

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)).cuda()
expected = [parameter.detach().clone() for parameter in model.parameters()]
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model(torch.ones(4, 8, device="cuda")).sum().backward()
for parameter, before in zip(model.parameters(), expected, strict=True):
    assert torch.equal(parameter.full_tensor(), before)
    assert parameter.grad.full_tensor().isfinite().all()
torch.cuda.synchronize()
dist.destroy_process_group()

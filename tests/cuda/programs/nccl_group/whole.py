import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.raising import raises

rank, file = int(sys.argv[1]), sys.argv[2]
torch.cuda.set_device(rank)
assert dist.is_nccl_available() and torch.cuda.nccl.version() >= (2, 10)
dist.init_process_group(
    "nccl", init_method=f"file://{file}", rank=rank, world_size=2, device_id=torch.device("cuda", rank)
)
assert dist.get_backend() == "nccl"
x = torch.full((4,), float(rank + 1), device="cuda")
dist.all_reduce(x)
dist.all_reduce(x, op=dist.ReduceOp.AVG)
assert x.tolist() == [3] * 4
gathered = torch.empty(8, device="cuda")
dist.all_gather_into_tensor(gathered, x * rank)
assert gathered.tolist() == [0] * 4 + [3] * 4
part = torch.empty(4, device="cuda")
dist.reduce_scatter_tensor(part, gathered, op=dist.ReduceOp.AVG)
assert part.tolist() == [3.0 * rank] * 4
sent = torch.arange(4.0, device="cuda") + 10 * rank
received = torch.empty_like(sent)
dist.all_to_all_single(received, sent)
assert received.tolist() == [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank]
dist.barrier(device_ids=[rank])
# Messages: one after the other, and both ways at once.
dist.send(sent, 1) if rank == 0 else dist.recv(received, 0)
assert rank == 0 or received.tolist() == [0, 1, 2, 3]
both = [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
for work in dist.batch_isend_irecv(both):
    work.wait()
assert received.tolist() == [10 - 10 * rank + i for i in range(4)]
raises("RuntimeError", "does not support recvAnysource", lambda: dist.recv(received))
objects = [None, None]
dist.all_gather_object(objects, rank)
assert objects == [0, 1]
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 2).cuda(), device_ids=[rank])
model(torch.randn(3, 4, device="cuda")).sum().backward()
gradients = [torch.empty(2, 4, device="cuda") for _ in range(2)]
dist.all_gather(gradients, model.module.weight.grad)
assert torch.equal(*gradients)
sharded = nn.Linear(4, 4).cuda()
fully_shard(sharded)
sharded(torch.randn(3, 4, device="cuda")).sum().backward()
assert sharded.weight.grad.to_local().shape == (2, 4)
dist.destroy_process_group()
print("done")

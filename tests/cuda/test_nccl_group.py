"""``init_process_group("nccl")`` under CUDA's name: two processes, whose tensors go through the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

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
dist.send(sent, 1) if rank == 0 else None
assert rank == 0 or (dist.recv(received), received.tolist()) == (0, [0, 1, 2, 3])  # from anyone
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
"""


LOST = """
import os, sys, time
import torch
import torch.distributed as dist

rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=2)
dist.barrier()
if rank == 1:
    while not os.path.exists(file + ".asked"):
        time.sleep(0.01)
    print("done", flush=True)
    os._exit(0)
work = dist.irecv(torch.zeros(4, device="cuda"), 1)
open(file + ".asked", "w").close()
failures = []
for _ in range(2):
    try:
        work.wait()
    except RuntimeError as error:
        failures.append(str(error))
print("done" if len(failures) == 2 else failures, flush=True)
os._exit(0)
"""


# What NCCL takes and gloo refuses, and what NCCL refuses and gloo does not.
PARTICULAR = """
import copy
import sys
import torch
import torch.distributed as dist

rank, file = int(sys.argv[1]), sys.argv[2]
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=2, device_id=device)


def full(*shape):
    return torch.full(shape, float(rank), device=device)


stacked = full(2, 3)
dist.all_gather_into_tensor(stacked, full(3))
assert stacked.tolist() == [[0] * 3, [1] * 3]
# Parts of a split, parameters and inference tensors: autograd would refuse to have them written in place.
whole = full(4, 1).requires_grad_() + 0
dist.all_gather_into_tensor(whole, full(2, 1) + 1)
assert whole.tolist() == [[1], [1], [2], [2]]
halves = list((full(4).requires_grad_() + 0).chunk(2))
dist.all_gather(halves, full(2))
assert [half.tolist() for half in halves] == [[0, 0], [1, 1]]
parameter = torch.nn.Parameter(full(2))
dist.all_reduce(parameter)
assert parameter.tolist() == [1, 1] and parameter.is_leaf
with torch.inference_mode():
    inferred = full(2)
dist.all_reduce(inferred)
assert inferred.tolist() == [1, 1]
uneven = [torch.empty(n + 1, device=device) for n in range(2)]
dist.all_gather(uneven, full(rank + 1))
assert [one.tolist() for one in uneven] == [[0], [1, 1]]
flat = full(2)
dist.reduce_scatter_tensor(flat, full(2, 2))
assert flat.tolist() == [1, 1]
for wrong, error in (
    (lambda: dist.all_gather_into_tensor(full(5), full(2)), ValueError),
    (lambda: dist.reduce_scatter_tensor(full(3), full(4)), ValueError),
    (lambda: dist.all_to_all_single(full(3), full(3)), RuntimeError),
):
    try:
        wrong()
    except error as raised:
        assert "(5,)" in str(raised) or "(3,)" in str(raised), raised
    else:
        raise AssertionError("no error")
for is_async in (False, True):
    with dist._coalescing_manager(device=device, async_ops=is_async) as together:
        first, second = full(2), full(3)
        dist.all_reduce(first)
        dist.all_reduce(second)
    if is_async:
        together.wait()
    assert first.tolist() == [1] * 2 and second.tolist() == [1] * 3
gathered = [full(2), full(4)]
with dist._coalescing_manager(device=device):
    dist.all_gather_into_tensor(gathered[0], full(1))
    dist.all_gather_into_tensor(gathered[1], full(2))
assert [one.tolist() for one in gathered] == [[0, 1], [0, 0, 1, 1]]
received = full(2)
with dist._coalescing_manager(device=device):
    dist.isend(full(2), 1 - rank)
    dist.irecv(received, 1 - rank)
assert received.tolist() == [1 - rank] * 2
sparse = torch.eye(2, device=device).to_sparse()
dist.all_reduce(sparse)
assert sparse.to_dense().tolist() == [[2, 0], [0, 2]]
# split_group does this.
options = dist.group.WORLD._get_backend(device).options
assert copy.deepcopy(options)._timeout == options._timeout
dist.destroy_process_group()
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [PROGRAM, PARTICULAR, LOST], ids=["whole", "as NCCL and not as gloo", "a rank that ends"]
)
def test_collectives_messages_and_sharding(tmp_path: Path, program: str) -> None:
    settings = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB", "TORCH_LOOM_DEVICES": "2"}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-c", program]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        results = [rank.communicate(timeout=55) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for output, errors in results:
        assert output == "done\n", errors

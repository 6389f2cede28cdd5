"""Collectives as commands on streams: what a call returns at once, graphs, profiles, hooks of DDP."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from tests.distributed.programs.ranks import run


def check(rank):
    x = torch.ones(1 << 16, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    returns_at_once(rank, x)
    waited_for_by_tensor()
    memory_is_used_again(rank)
    memory_of_what_nobody_waits_for(rank)
    captured()
    profiled(x)
    compressed(rank)
    meshes(rank)
    dist.destroy_process_group()


def returns_at_once(rank, x):
    if rank == 1:
        dist.distributed_c10d._get_default_store().wait(["asked"])
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        assert not work.is_completed()
        dist.distributed_c10d._get_default_store().set("asked", "")
    work.wait()
    torch.cuda.synchronize()
    assert work.is_completed() and x[0].item() == 4


def waited_for_by_tensor():
    """PyTorch keeps works for wait_tensor() where collectives under way may be traced, until one waits."""
    num_kept = torch._C._distributed_c10d._get_work_registry_size
    with dist._functional_collectives.allow_inflight_collective_as_graph_input_ctx():
        x, y = (torch.ones(4, device="cuda") for _ in range(2))
        dist.all_reduce(x, async_op=True)
        work = dist.all_reduce(y, async_op=True)
        assert num_kept() == 2
        work.wait()
        assert num_kept() == 1
        torch.ops._c10d_functional.wait_tensor(x)
        assert num_kept() == 0
    assert x.tolist() == y.tolist() == [2.0] * 4


def memory_is_used_again(rank):
    """After a wait the stream's order is enough: a host that runs ahead takes no more memory."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["issued"])
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for turn in range(8):
        x = torch.full((8 << 20,), float(turn), device="cuda")
        gathered = torch.empty(2, 8 << 20, device="cuda")
        dist.all_gather_into_tensor(gathered, x, async_op=True).wait()
        total = gathered.sum()
        del x, gathered
    assert torch.cuda.memory_reserved() - before < 200 << 20
    if rank == 0:
        store.set("issued", "")
    assert total.item() == 7 * (16 << 20)


def memory_of_what_nobody_waits_for(rank):
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["dropped"])
    x = torch.full((8 << 20,), rank + 1.0, device="cuda")
    address = x.data_ptr()
    dist.all_reduce(x, async_op=True)
    del x
    if rank == 0:
        taken = torch.zeros(8 << 20, device="cuda")
        assert taken.data_ptr() != address
        store.set("dropped", "")
    torch.cuda.synchronize()
    again = [torch.empty(8 << 20, device="cuda") for _ in range(2)]
    assert address in [tensor.data_ptr() for tensor in again]


def captured():
    y = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(y)
        y.mul_(0.5).add_(1)
    assert y.tolist() == [1] * 4
    for _ in range(3):
        graph.replay()
    assert y.tolist() == [4] * 4


def profiled(x):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        dist.all_reduce(x)
        torch.cuda.synchronize()
    names = [row.key for row in found.key_averages()]
    assert "nccl:all_reduce" in names, names
    assert any(name.startswith("ncclDevKernel_AllReduce_Sum_f32") for name in names), names


def compressed(rank):
    model = DistributedDataParallel(nn.Linear(64, 64).cuda(), device_ids=[rank])
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
    gradients = [torch.empty(64, 64, device="cuda") for _ in range(2)]
    dist.all_gather(gradients, model.module.weight.grad)
    assert torch.equal(*gradients)


def meshes(rank):
    mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("outer", "inner"))
    x = torch.full((1,), float(rank), device="cuda")
    dist.all_reduce(x, group=mesh["inner"].get_group())
    assert x.item() == 1


run(2, check, "nccl")

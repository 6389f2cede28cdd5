"""Symmetric memory: what ranks of one machine map of one another, signals between them, and its refusals."""

import ast
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

from tests.distributed.programs.ranks import run
from tests.raising import raises

name, num_ranks = ast.literal_eval(sys.argv[1])


def memory_of(rank, count=1000, dtype=torch.float32):
    tensor = symmetric.empty(count, dtype=dtype, device=f"{name}:{rank}")
    return tensor, symmetric.rendezvous(tensor, dist.group.WORLD)


def buffers(rank):
    tensor, memory = memory_of(rank)
    assert (memory.rank, memory.world_size, memory.buffer_size) == (rank, num_ranks, 4000)
    assert memory.get_buffer(rank, (1000,), torch.float32).data_ptr() == tensor.data_ptr()
    assert symmetric.rendezvous(tensor, dist.group.WORLD).buffer_ptrs == memory.buffer_ptrs
    tensor.copy_(torch.arange(1000) + 1000 * rank)
    memory.barrier()
    for peer in range(num_ranks):
        part = memory.get_buffer(peer, (10, 5), torch.float32, 7)
        assert part.device == tensor.device
        assert part.cpu().equal((torch.arange(7, 57.0) + 1000 * peer).view(10, 5))
    memory.barrier()
    following = (rank + 1) % num_ranks
    memory.get_buffer(following, (1000,), torch.float32).fill_(rank)
    memory.put_signal(following, channel=1)
    memory.wait_signal((rank - 1) % num_ranks, channel=1)
    assert tensor.eq((rank - 1) % num_ranks).all()
    # A handle is enough to keep the memory of all ranks.
    del tensor
    memory.barrier()
    assert memory.get_buffer(following, (1000,), torch.float32).eq(rank).all()
    memory.barrier()
    dist.barrier()
    assert memory.get_signal_pad(rank).cpu().eq(0).all()
    none, memory = memory_of(rank, 0)
    memory.barrier()
    assert none.numel() == memory.buffer_size == 0


def ops(rank):
    group = dist.group.WORLD.group_name
    for dtype in (torch.float32, torch.bfloat16):
        tensor, _ = memory_of(rank, 64, dtype)
        values = torch.randn(num_ranks, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
        expected = values[0].clone()
        for one in values[1:]:
            expected += one
        tensor.copy_(values[rank])
        assert torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", group).cpu().equal(expected)
        part = torch.empty(64 // num_ranks, dtype=dtype, device=tensor.device)
        torch.ops.symm_mem.reduce_scatter_out(tensor[: part.numel() * num_ranks], group, False, part)
        assert part.cpu().equal(expected[part.numel() * rank : part.numel() * (rank + 1)])
        torch.ops.symm_mem.two_shot_all_reduce_(tensor[8:32], "sum", group)
        assert tensor.cpu().equal(torch.cat([values[rank][:8], expected[8:32], values[rank][32:]]))
    words = symmetric._SymmetricMemory.empty_strided_p2p((8,), (1,), torch.uint32, tensor.device)
    torch.ops.symm_mem.memset32_(words.fill_(0), 2, 7, 3)
    assert words.tolist() == [0, 0, 7, 7, 7, 0, 0, 0]


def refusals(rank):
    device = torch.device(name, rank)
    plain, op = torch.empty(4, device=device), torch.ops.symm_mem
    group = dist.group.WORLD.group_name
    assert symmetric._SymmetricMemory.rendezvous(plain, group) is None
    tensor, memory = memory_of(rank)
    square, small = tensor.view(25, 40), torch.empty(2, 20, device=device)
    for kind, text, body in (
        (
            "RuntimeError",
            "the input must be contiguous",
            lambda: op.one_shot_all_reduce(square.t(), "sum", group),
        ),
        (
            "RuntimeError",
            "must share dimension 0 evenly",
            lambda: op.reduce_scatter_out(square[:1], group, False, small),
        ),
        (
            "RuntimeError",
            "does not fit into a tensor of",
            lambda: op.one_shot_all_reduce_out(square[:1], "sum", group, torch.empty(2, 40, device=device)),
        ),
        (
            "RuntimeError",
            "the input must be symmetric memory",
            lambda: op.one_shot_all_reduce(plain, "sum", group),
        ),
        ("NotImplementedError", "multimem_all_reduce_", lambda: op.multimem_all_reduce_(plain, "sum", group)),
        ("ValueError", "all ranks must allocate the same", lambda: memory_of(rank, 16 + rank)),
        ("ValueError", "the channel must be at least 0 and below", lambda: memory.barrier(channel=1 << 20)),
        ("ValueError", "the rank must be 0 to", lambda: memory.put_signal(num_ranks)),
        ("ValueError", "the rank must be 0 to", lambda: memory.get_signal_pad(-1)),
        ("ValueError", "the rank must be 0 to", lambda: memory.get_signal_pad(num_ranks)),
        ("RuntimeError", "exceeded the numel", lambda: op.memset32_(plain.view(torch.uint32), 3, 7, 2)),
    ):
        raises(kind, text, body)
    dist.barrier()
    if rank == 0:
        raises("RuntimeError", "none came within 50 ms", lambda: wait(memory, timeout_ms=50))
    dist.barrier()


def late(rank):
    """Ranks wait for one another in a rendezvous while their other threads go on."""
    tensor, store = symmetric.empty(10, device=f"{name}:{rank}"), dist.distributed_c10d._get_default_store()
    group = dist.group.WORLD.group_name
    if rank == 0:
        begins, switch = threading.Event(), sys.getswitchinterval()

        def let_go():
            begins.wait()
            store.set("go", "1")

        thread = threading.Thread(target=let_go)
        thread.start()
        sys.setswitchinterval(100)  # the thread runs when this one gives way
        begins.set()
    else:
        store.wait(["go"])
    memory = symmetric._SymmetricMemory.rendezvous(tensor, group)
    if rank == 0:
        sys.setswitchinterval(switch)
        thread.join()
    memory.barrier(timeout_ms=(1 << 64) - 1)
    torch.accelerator.synchronize()


def wait(memory, **settings):
    memory.wait_signal(num_ranks - 1, **settings)
    torch.accelerator.synchronize()


def in_simulated_time(rank):
    """A barrier begins when the latest rank is ready, and what waits for a signal when its sender is."""
    device, late_ms = torch.get_device_module(name), 10.0
    late = num_ranks - 1
    _, memory = memory_of(rank)

    def signals():
        if rank == late:
            memory.put_signal(0, channel=1)
        elif rank == 0:
            memory.wait_signal(late, channel=1)

    memory.barrier()
    for action in (memory.barrier, signals):
        device.synchronize()
        dist.barrier()
        start, end = (device.Event(enable_timing=True) for _ in range(2))
        start.record()
        if rank == late:
            device._sleep(int(device.get_device_properties(rank).clock_rate * late_ms))
        action()
        end.record()
        end.synchronize()
        waits = action == memory.barrier or rank in (0, late)
        assert abs(start.elapsed_time(end) - late_ms * waits) < 0.5, (rank, action, start.elapsed_time(end))


def killed(rank):
    _, memory = memory_of(rank)
    memory.barrier()
    dist.barrier()
    if rank == num_ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raises("RuntimeError", "which has ended", lambda: wait(memory))


run(num_ranks, buffers)
run(num_ranks, ops)
run(num_ranks, refusals)
run(num_ranks, late)
run(num_ranks, in_simulated_time)
try:
    run(num_ranks, killed)
except AssertionError as error:
    assert error.args[0] == [0] * (num_ranks - 1) + [signal.SIGKILL], error.args
else:
    raise AssertionError("no rank was killed")

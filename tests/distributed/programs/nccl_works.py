"""What ProcessGroupNCCL and its works have beside the collectives: times, results, hooks, variables."""

import ast
import os
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import OpType, WorkResult

from tests.distributed.programs.ranks import TIMEOUT, run
from tests.raising import raises

kind = ast.literal_eval(sys.argv[1])


def made(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cuda"))


def seconds(number):
    return timedelta(seconds=number)


def times(rank):
    """Extra time is the next works', until one that got it has ended."""
    group, x = made(), torch.ones(4, device="cuda")
    assert group._verify_work_timeout(group.allreduce([x]), TIMEOUT)
    dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(seconds(10))
    works = [group.allreduce([x]), group.allreduce([x])]
    assert all(group._verify_work_timeout(work, TIMEOUT + seconds(10)) for work in works)
    assert not group._verify_work_timeout(works[0], TIMEOUT)
    torch.cuda.synchronize()
    group._add_ephemeral_timeout(seconds(5))
    assert group._verify_work_timeout(group.allreduce([x]), TIMEOUT + seconds(5))
    torch.cuda.synchronize()
    assert group._verify_work_timeout(group.allreduce([x]), TIMEOUT)
    other = dist.all_reduce(torch.ones(1), group=dist.new_group(backend="gloo"), async_op=True)
    raises("DistBackendError", "Non c10d::WorkNCCL", lambda: group._verify_work_timeout(other, TIMEOUT))

    raises("RuntimeError", "getDuration only works if timing was enabled", works[0]._get_duration)
    dist.group.WORLD._enable_collectives_timing()
    # Of simulated time, which all ranks agree about.
    works = [group.allreduce([torch.ones(n, device="cuda")]) for n in (4, 1 << 20)]
    torch.cuda.synchronize()
    short, long = (work._get_duration() for work in works)
    assert 0 < short < long, (short, long)


def results(rank):
    group, x = made(), torch.ones(4, device="cuda")
    called = threading.Event()
    work = group.allreduce([x])
    future = work.get_future_result()
    future.then(lambda done: called.set() if done.value() == WorkResult.SUCCESS.value else None)
    assert future.wait() == WorkResult.SUCCESS.value
    assert called.wait(20)
    torch.cuda.synchronize()
    assert work.get_future_result().wait() == WorkResult.SUCCESS.value
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        # The other rank does not come.
        group._set_default_timeout(seconds(1))
        work = group.allreduce([x])
        assert work.get_future_result().wait() == WorkResult.TIMEOUT.value
        assert not work.is_success()
        store.set("over", "")
        raises("DistBackendError", "ran for", work.wait)
        os._exit(0)
    store.wait(["over"])
    os._exit(0)


def hooks(rank):
    pair = dist.new_group()
    raises("ValueError", "TORCH_NCCL_ENABLE_TIMING", lambda: pair._register_on_completion_hook(print))
    os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    group, told = dist.new_group(), []
    group._register_on_completion_hook(
        lambda info: told.append((info.op_type, info.seq, info.active_duration))
    )
    raises("DistBackendError", "hook already registered", lambda: group._register_on_completion_hook(print))
    x = torch.full((4,), float(rank), device="cuda")
    group.allreduce([x])
    group.broadcast([x])
    group._wait_for_pending_works()
    assert [one[:2] for one in told] == [(OpType.ALLREDUCE, 1), (OpType.BROADCAST, 2)], told
    assert all(one[2] > timedelta(0) for one in told), told
    group.allreduce([x]).wait()
    dist.destroy_process_group(group)
    assert len(told) == 3

    failing = dist.new_group()

    def hook(info):
        raise KeyError("of the hook")

    failing._register_on_completion_hook(hook)
    failing.allreduce([x])
    raises("DistBackendError", "of the hook", failing._wait_for_pending_works)
    raises("DistBackendError", "of the hook", lambda: failing.allreduce([x]))


def first_call(rank):
    """Ranks find each other in the first call, which refuses two of them on one device."""
    x = torch.ones(4, device="cuda:0")
    work = []
    raises("DistBackendError", "Duplicate GPU detected", lambda: work.append(dist.broadcast(x, 0)))
    assert not work
    raises("DistBackendError", "Duplicate GPU detected", lambda: dist.all_reduce(x))
    store = dist.distributed_c10d._get_default_store()
    store.set(f"refused on {rank}", "")
    store.wait(["refused on 0", "refused on 1"])


def float8(rank):
    x = torch.ones(4, device="cuda")
    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu):
        bad = x.to(dtype)
        for call in (
            lambda bad=bad: dist.all_reduce(bad),
            lambda bad=bad: dist.reduce_scatter_tensor(bad[:2], bad),
            lambda bad=bad: dist.all_reduce_coalesced([bad, bad]),
        ):
            raises("RuntimeError", "Unsupported Float8 type for NCCL reduction", call)
    good = x.to(torch.float8_e4m3fn)
    dist.all_reduce(good)
    assert good.float().eq(2).all()


def variables(rank):
    """Each group does as the variables said when it was made, not when the last one was."""
    x = torch.ones(4, device="cuda")
    first = dist.group.WORLD
    dist.all_reduce(x)
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    second = dist.new_group()
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "0"
    third = dist.new_group()
    store = dist.distributed_c10d._get_default_store()
    for group in (second, third):
        dist.all_reduce(x, group=group)
        torch.cuda.synchronize()
    for number, group in enumerate((first, third)):
        # Rank 1 begins when rank 0 has waited.
        if rank == 1:
            store.wait([f"waited {number}"])
        dist.all_reduce(x, group=group)
        store.set(f"waited {number}", "")
        torch.cuda.synchronize()
    work = dist.all_reduce(x, group=second, async_op=True)
    work.wait()
    assert work.is_completed()


def graphs(rank):
    """A captured collective is not pending: destroying its group does not wait for it."""
    x = torch.ones(4, device="cuda")
    dist.all_reduce(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        raises("RuntimeError", "captured by a graph", work.get_future_result)
    graph.replay()
    torch.cuda.synchronize()
    assert x.eq(4).all()
    began = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - began < TIMEOUT.total_seconds() / 2


def late(rank):
    """The first call does not wait; the other one finds its part there and has the result when it returns."""
    store, x = dist.distributed_c10d._get_default_store(), torch.full((4,), rank + 1.0, device="cuda")
    dist.barrier()
    for number, call in enumerate((dist.all_reduce, dist.all_gather_into_tensor, dist.broadcast)):
        y = torch.empty(8, device="cuda")
        arguments = {0: (x,), 1: (y, x), 2: (x, 0)}[number]
        if rank == 0:
            store.wait([f"issued {number}"])
        work = call(*arguments, async_op=True)
        if rank == 1:
            store.set(f"issued {number}", "")
        else:
            assert work.is_completed(), call
        work.wait()
        torch.cuda.synchronize()
        assert x.eq(3).all()
        assert number != 1 or y.eq(3).all()
    if rank == 1:
        work = dist.isend(x * 2, 0)
        assert work.is_completed()
        store.set("sent", "")
        return
    store.wait(["sent"])
    work = dist.irecv(x, 1)
    assert work.is_completed()
    assert x.eq(6).all()


def asserts(rank):
    """A device that has asserted takes part in no collective, and the other rank does not wait for ever."""
    x = torch.ones(4, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 0:
        x[torch.full((1,), 9, device="cuda")]
        raises("AcceleratorError", "device-side assert", lambda: dist.all_reduce(x))
        return

    def meet():
        dist.all_reduce(x)
        torch.cuda.synchronize()

    raises("DistBackendError", "rank 0", meet)


run(2, globals()[kind], "nccl")

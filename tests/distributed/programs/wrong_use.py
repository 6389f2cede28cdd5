"""Ranks that do not call the same collectives: all of them raise, with the lines of both."""

import ast
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import can_be_other_machines, run

PATIENCE = timedelta(seconds=15)
kind, is_between_machines = ast.literal_eval(sys.argv[1])
# So that what other processes publish meanwhile is not among these ranks'.
MACHINE = os.environ["TORCH_LOOM_MACHINE"] = f"test{os.getpid()}"


def check(rank):
    x = torch.ones(8, device="loom")
    dist.all_reduce(x)
    torch.loom.synchronize()
    began = time.monotonic()
    try:
        wrong(rank, x)
        torch.loom.synchronize()
    except dist.DistBackendError as error:
        text = str(error)
    else:
        raise AssertionError("nothing was raised")
    for part in WANTED[kind]:
        assert part in text, text
    assert time.monotonic() - began < 15
    if kind == "killed" and not is_between_machines:
        own = [name for name in os.listdir("/dev/shm") if f"-{MACHINE}-" in name]
        assert len(own) == 1, own  # what the killed rank had published is gone
    if kind == "store":
        return  # the default group had found its ranks before
    # The group is of no use any more, and says so at once.
    try:
        dist.all_reduce(x)
        torch.loom.synchronize()
    except dist.DistBackendError:
        pass
    else:
        raise AssertionError("the group goes on")


def wrong(rank, x):
    store = dist.distributed_c10d._get_default_store()
    if kind == "shape":
        dist.all_reduce(torch.ones(4 if rank == 0 else 400, device="loom"))
    elif kind == "dtype":
        dist.all_reduce(x if rank == 0 else x.int())
    elif kind == "root":
        dist.broadcast(x, rank)
    elif kind == "reduction":
        dist.all_reduce(x, dist.ReduceOp.SUM if rank == 0 else dist.ReduceOp.MAX)
    elif kind == "order":
        out = torch.empty(16, device="loom")
        calls = [lambda: dist.all_reduce(x), lambda: dist.all_gather_into_tensor(out, x)]
        for call in calls if rank == 0 else reversed(calls):
            call()
    elif kind == "message":
        dist.send(x, 1) if rank == 0 else dist.recv(x[:4], 0)
        if rank == 0:
            dist.all_reduce(x)
    elif kind == "split":
        sizes = [2, 6] if rank == 0 else [4, 4]
        dist.all_to_all_single(torch.empty(8, device="loom"), x, [4, 4], sizes)
    elif kind == "missing":
        if rank == 0:
            try:
                dist.all_reduce(x)
                torch.loom.synchronize()
            finally:
                store.set("raised", "")
        else:
            store.wait(["raised"], PATIENCE)
            dist.all_reduce(x)
    elif kind == "store":
        group = dist.new_group([0, 1])
        dist.all_reduce(x)
        torch.loom.synchronize()  # both have made it
        if rank == 1:
            while isinstance(store, dist.PrefixStore):
                store = store.underlying_store
            os.unlink(store.path)
            with open(store.path, "w"):
                pass  # another file, which may get the number of the first
        dist.all_reduce(x, group=group)
    elif kind == "abort":
        if rank == 0:
            work = dist.all_reduce(x, async_op=True)
            dist.group.WORLD._get_backend(x.device).abort()
            store.set("aborted", "")
            del work
        else:
            store.wait(["aborted"], PATIENCE)
            dist.all_reduce(x)
    elif kind == "killed":
        if rank == 1:
            # The first process of a namespace does not get its own signals.
            os._exit(1) if is_between_machines else os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(x)


HERE = "wrong_use.py:"
WANTED = {
    "shape": (
        "rank 0 called all_reduce(float32 [4], sum)",
        "rank 1 called all_reduce(float32 [400], sum)",
        HERE,
    ),
    "dtype": ("all_reduce(float32 [8], sum)", "all_reduce(int32 [8], sum)", HERE),
    "root": ("broadcast(float32 [8], root 0)", "broadcast(float32 [8], root 1)", HERE),
    "reduction": ("all_reduce(float32 [8], sum)", "all_reduce(float32 [8], max)", HERE),
    "order": (
        f"rank 0 called all_reduce(float32 [8], sum) as operation 2 at {__file__}:",
        f"rank 1 called all_gather(float32 [8]) as operation 2 at {__file__}:",
    ),
    "message": ("a message does not fit", "send(float32 [8]", "recv(float32 [4]", HERE),
    "split": ("which takes 16 bytes: all_to_all", HERE),
    "missing": ("Watchdog caught collective operation timeout", "OpType=ALLREDUCE, NumelIn=8", HERE),
    "store": ("the file of the group's store", "was removed or replaced"),
    "abort": ("the communicator was aborted on rank 0",),
    "killed": ("rank 1 has ended",),
}
seconds = 2 if kind == "missing" else 20
try:
    group = {"timeout": timedelta(seconds=seconds)}
    if not is_between_machines:
        run(2, check, "loom", **group)
    elif can_be_other_machines():
        run(2, check, "loom", machine_of=lambda rank: rank, **group)
except AssertionError as error:
    assert kind == "killed" and str(error).startswith("[0, "), error
assert not [name for name in os.listdir("/dev/shm") if name.startswith("loom")]
# The next process of a machine removes what a killed one had published; these machines have none.
for name in os.listdir("/dev/shm"):
    if f"-{MACHINE}" in name:
        os.unlink(f"/dev/shm/{name}")

"""Collectives where the system has no pidfd_open, as old kernels and some containers: ranks wait, and end."""

import ctypes
import errno
import os
import signal

import torch
import torch.distributed as dist

from tests.distributed.programs.ranks import run
from tests.raising import raises

PIDFD_OPEN = 434  # on every architecture
LOAD, EQUALS, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2


class Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("first", ctypes.POINTER(Instruction)))


def take_pidfd_open_away():
    instructions = (Instruction * 4)(
        Instruction(LOAD, 0, 0, 0),
        Instruction(EQUALS, 0, 1, PIDFD_OPEN),
        Instruction(RETURN, 0, 0, FAIL | errno.ENOSYS),
        Instruction(RETURN, 0, 0, ALLOW),
    )
    library = ctypes.CDLL(None, use_errno=True)
    assert library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert library.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(Program(4, instructions)), 0, 0) == 0
    try:
        os.pidfd_open(os.getpid())
    except OSError as error:
        assert error.errno == errno.ENOSYS
    else:
        raise AssertionError("pidfd_open() works")


def sums(rank):
    tensor = torch.full((4,), rank + 1.0, device=f"loom:{rank}")
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 4


def killed(rank):
    sums(rank)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raises("DistBackendError", "rank 1 has ended", lambda: sums(rank))


take_pidfd_open_away()
run(2, sums)
try:
    run(2, killed)
except AssertionError as error:
    assert error.args[0] == [0, signal.SIGKILL], error.args
else:
    raise AssertionError("no rank was killed")

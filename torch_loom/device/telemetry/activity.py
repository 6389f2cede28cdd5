"""What the processes of a machine do with its devices: each publishes, all read.

A process puts its figures into a file in ``/dev/shm`` at its first use of the devices and holds a lock on it,
which the kernel takes back when the process ends, however it ends. A forked child, which holds none, is not
taken for its parent. ``csrc/telemetry`` reads the files, here and in NVML's library.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import tempfile
import warnings
from typing import NamedTuple

from torch_loom import _C, config

FOLDER = "/dev/shm"
ALONE = "none"

_published: str | None = None  # the path
_machine = ALONE  # whose files are read; ALONE also if this process could not publish
_failure: str | None = None  # why it could not, if it was not asked to be alone


class Process(NamedTuple):
    """What one process does with one device.

    Attributes:
        pid: its id.
        memory_bytes: device memory that it has taken.
        capacity_bytes: device memory that there is for it; 0 before it takes any.
        chip: the name of the chip that the device is to it, cut to 31 bytes.
    """

    pid: int
    memory_bytes: int
    capacity_bytes: int
    chip: str


def join(settings: config.Settings) -> None:
    """Publish what this process does to the machine's other processes. If that fails, it works alone."""
    global _machine, _published, _failure
    if settings.machine == ALONE:
        _publish_unnamed()
        return
    prefix = f"torch-loom-{os.geteuid()}-{settings.machine}-"
    try:
        _published = _publish(prefix)
    except (OSError, RuntimeError) as error:
        _failure = str(error)
        _publish_unnamed()
        return
    _machine = settings.machine
    atexit.register(_withdraw, os.getpid())
    _C.activity_processes(_machine)  # removes what is left over


def _publish(prefix: str) -> str:
    while True:
        file, path = tempfile.mkstemp(prefix=prefix, dir=FOLDER)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have taken it for left over before it was locked.
            if os.fstat(file).st_nlink == 0:
                raise BlockingIOError
            # Pages that are there cannot fail to be, which would be a signal in the middle of a kernel.
            os.posix_fallocate(file, 0, _C.activity_bytes())
            _C.publish_activity(file)
        except BlockingIOError:
            os.close(file)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        else:
            return path  # the file stays open: closing it would give up the lock


def _publish_unnamed() -> None:
    # NVML's library, in this process, reads what is published. It finds this among the open files.
    with contextlib.suppress(OSError):  # a sandbox may refuse it: then NVML does not see this process's use
        file = os.memfd_create("torch-loom-activity")
        os.ftruncate(file, _C.activity_bytes())
        _C.publish_activity(file)


def _withdraw(process: int) -> None:
    # A forked child has its parent's handlers.
    if os.getpid() == process and _published is not None:
        with contextlib.suppress(OSError):
            os.unlink(_published)
        _C.activity_processes(_machine)  # removes what killed processes have left over


def processes(physical_device: int) -> list[Process]:
    """Return what each process does with a device, the calling process first.

    Warns, once, if the others cannot be seen.
    """
    _tell_failure()
    return [
        Process(pid, memory_bytes, capacity_bytes, chip.decode(errors="replace"))
        for physical, pid, memory_bytes, capacity_bytes, chip in _C.activity_processes(_machine)
        if physical == physical_device
    ]


def _tell_failure() -> None:
    global _failure
    if _failure is not None:
        reason, _failure = _failure, None
        warnings.warn(
            f"Other processes that use the devices cannot be seen, and do not see this one: {reason}. "
            "TORCH_LOOM_MACHINE=none says that this is wanted.",
            stacklevel=5,
        )


def devices_of_others() -> set[int]:
    """Return the physical indices of the devices whose memory other processes have taken."""
    found = _C.activity_processes(_machine)
    return {physical for physical, pid, memory_bytes, *_ in found if pid != os.getpid() and memory_bytes}


def busy_share(physical_device: int) -> tuple[float, float]:
    """Return for which share of the last second kernels ran on a device, and kernels or copies: 0 … 1.

    What streams, of this process or another, did in the same 17 to 34 ms is taken to overlap by chance.
    """
    _tell_failure()
    now, _ = _C.clock_ticks()
    return _C.busy_share(_machine, physical_device, now)

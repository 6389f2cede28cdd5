"""What the processes of a machine do with its devices: each publishes, all read.

A process puts its figures into a file in ``/dev/shm`` at its first use of the devices and holds a lock on it,
which the kernel takes back when the process ends, however it ends. A file that nobody holds is left over:
whoever sees it removes it. A lock names its holder, so no process is taken for another one that had its id
before, and a forked child, which holds none, is not taken for its parent.

What another process has written is not trusted: a file of another size or version, or with figures out of
bounds, is passed over. Files of other users are not looked at.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import stat
import struct
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from torch_loom import _C, config
from torch_loom.config.parsers import MAX_DEVICES, MAX_MEMORY_BYTES
from torch_loom.device._core.first_use import at_first_use

FOLDER = "/dev/shm"
ALONE = "none"

# As in csrc/runtime/ipc/activity_board.h.
_HEADER = struct.Struct("=8s6I")
_DEVICE = struct.Struct("=IIQQ32s")
_MAGIC = b"LOOMACT\0"
_VERSION = 2
_DEVICES_OFFSET, _STREAMS_OFFSET = 64, 4096
_NUM_BUCKETS = 64
_STREAM_BYTES = 64 + 16 * _NUM_BUCKETS
_MAX_STREAMS = 256
_MAX_FILE_BYTES = _STREAMS_OFFSET + MAX_DEVICES * _MAX_STREAMS * _STREAM_BYTES

# struct flock of Linux: type, whence, start, length, holder.
_LOCK = struct.Struct("@hhqqi0q")

_published: str | None = None  # the path
_prefix: str | None = None  # of the files of this machine; None: this process is alone
_failure: str | None = None  # why it is, if it was not asked to be


@dataclass(frozen=True)
class Process:
    """What one process does with one device.

    Attributes:
        pid: its id.
        memory_bytes: device memory that it has taken.
        capacity_bytes: device memory that there is for it; 0 before it takes any.
        chip: the name of the chip that the device is to it, cut to 31 bytes.
        streams: of each stream that ever ran anything, 136 words: when what runs now began, whether that is
            a copy, six unused; then the buckets of its kernels and those of its copies.
        bucket_shift: a bucket is 2**this ticks.
    """

    pid: int
    memory_bytes: int
    capacity_bytes: int
    chip: str
    streams: tuple[memoryview, ...]
    bucket_shift: int


def _join(settings: config.Settings) -> None:
    """Let the other processes of the machine see what this one does. Where that fails it works alone."""
    global _prefix, _published, _failure
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
    _prefix = prefix
    atexit.register(_withdraw, os.getpid())
    for _ in _others():  # removes what is left over
        pass


def _publish(prefix: str) -> str:
    while True:
        file, path = tempfile.mkstemp(prefix=prefix, dir=FOLDER)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Someone may have taken it for left over before it was locked.
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


def processes(physical_device: int) -> list[Process]:
    """Return what each process does with a device, this one first.

    Warns, once, if the others cannot be seen.
    """
    global _failure
    if _failure is not None:
        reason, _failure = _failure, None
        warnings.warn(
            f"Other processes that use the devices cannot be seen, and do not see this one: {reason}. "
            "TORCH_LOOM_MACHINE=none says that this is wanted.",
            stacklevel=4,
        )
    own = _parse(_C.activity(), os.getpid(), physical_device)
    found = [] if own is None else [own]
    for pid, content in _others():
        other = _parse(content, pid, physical_device)
        if other is not None:
            found.append(other)
    return found


def devices_of_others() -> set[int]:
    """Return the physical indices of the devices whose memory other processes have taken."""
    places = range(MAX_DEVICES)
    contents = list(_others())
    found = {place: [_parse(content, pid, place) for pid, content in contents] for place in places}
    return {place for place, users in found.items() if any(user and user.memory_bytes for user in users)}


def _others() -> Iterator[tuple[int, bytes]]:
    if _prefix is None:
        return
    try:
        names = os.listdir(FOLDER)
    except OSError:
        return
    for name in names:
        path = os.path.join(FOLDER, name)
        if name.startswith(_prefix) and path != _published:
            found = _read(path)
            if found is not None:
                yield found


def _read(path: str) -> tuple[int, bytes] | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, holder = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            # Taken first: the one who made it may be about to lock it, and then makes another.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
            return None
        if status.st_size > _MAX_FILE_BYTES:
            return None
        return holder, os.pread(file, status.st_size, 0)
    except OSError:
        return None
    finally:
        os.close(file)


def _parse(content: bytes, pid: int, physical_device: int) -> Process | None:
    if len(content) < _STREAMS_OFFSET:
        return None
    magic, version, owner, num_devices, num_streams, num_buckets, shift = _HEADER.unpack_from(content)
    if magic != _MAGIC or version != _VERSION or owner != pid or num_buckets != _NUM_BUCKETS:
        return None
    if num_devices > MAX_DEVICES or num_streams > _MAX_STREAMS or not 8 <= shift <= 31:
        return None
    if len(content) < _STREAMS_OFFSET + num_devices * num_streams * _STREAM_BYTES:
        return None
    for index in range(num_devices):
        place = _DEVICES_OFFSET + index * _DEVICE.size
        physical, _, memory_bytes, capacity_bytes, chip = _DEVICE.unpack_from(content, place)
        if physical != physical_device:
            continue
        if max(memory_bytes, capacity_bytes) > MAX_MEMORY_BYTES:
            return None
        name = chip.partition(b"\0")[0].decode(errors="replace")
        first = _STREAMS_OFFSET + index * num_streams * _STREAM_BYTES
        starts = range(first, first + num_streams * _STREAM_BYTES, _STREAM_BYTES)
        view = memoryview(content)
        streams = tuple(
            view[start : start + _STREAM_BYTES].cast("Q")
            for start in starts
            if content.count(0, start, start + _STREAM_BYTES) != _STREAM_BYTES
        )
        return Process(pid, memory_bytes, capacity_bytes, name, streams, shift)
    return None


def busy_share(physical_device: int) -> tuple[float, float]:
    """Return for which share of the last second kernels ran on a device, and kernels or copies: 0 … 1.

    What streams, of this process or another, did in the same 17 to 34 ms is taken to overlap by chance.
    """
    found = processes(physical_device)
    now, ticks_per_second = _C.clock_ticks()
    kernels_idle = idle = 1.0
    # Processes that measured the counter a little differently may have buckets of another size.
    for shift in {process.bucket_shift for process in found}:
        streams = [s for process in found if process.bucket_shift == shift for s in process.streams]
        kernels, both = _busy_share(streams, shift, now, int(ticks_per_second))
        kernels_idle *= 1.0 - kernels
        idle *= 1.0 - both
    return 1.0 - kernels_idle, 1.0 - idle


def _busy_share(streams: list[memoryview], shift: int, now: int, period: int) -> tuple[float, float]:
    kernels_idle: dict[int, float] = {}
    idle: dict[int, float] = {}
    start = max(now - period, 0)
    first, last = start >> shift, now >> shift
    for stream in streams:
        _fold(stream, shift, (first, last), now, (kernels_idle, idle))
    kernel_ticks = any_ticks = 0.0
    for number in range(first, last + 1):
        length = min((number + 1) << shift, now) - max(number << shift, start)
        kernel_ticks += length * (1.0 - kernels_idle.get(number, 1.0))
        any_ticks += length * (1.0 - idle.get(number, 1.0))
    return min(kernel_ticks / period, 1.0), min(any_ticks / period, 1.0)


def _fold(
    stream: memoryview,
    shift: int,
    numbers: tuple[int, int],
    now: int,
    idle: tuple[dict[int, float], dict[int, float]],
) -> None:
    """Multiply the idle shares of each bucket by those of one stream."""
    began, runs_copy = stream[0], stream[1] != 0
    for number in range(numbers[0], numbers[1] + 1):
        ends = min((number + 1) << shift, now)
        length = ends - (number << shift)
        if length <= 0:
            continue
        busy = [0, 0]
        for kind in (0, 1):
            word = stream[8 + kind * _NUM_BUCKETS + number % _NUM_BUCKETS]
            if word >> 32 == number & 0xFFFFFFFF:
                busy[kind] = word & 0xFFFFFFFF
        if began and began < ends:  # what runs still
            busy[runs_copy] += ends - max(began, number << shift)
        kernels, both = min(busy[0] / length, 1.0), min(sum(busy) / length, 1.0)
        if both:
            idle[0][number] = idle[0].get(number, 1.0) * (1.0 - kernels)
            idle[1][number] = idle[1].get(number, 1.0) * (1.0 - both)


at_first_use(_join)

"""What a dry run took: memory by what it is for, and time by what it is spent on."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from torch.types import Device

from torch_loom import _C
from torch_loom.device._core import first_use
from torch_loom.device._core.device_index import _get_device_index
from torch_loom.device.plan.batches import Event, growing, largest_factor
from torch_loom.device.plan.group import MAX_RANKS, PlannedGroup, end_planned_groups
from torch_loom.device.plan.recording import Frame, Recording
from torch_loom.errors import DryRunError, InvalidDeviceError
from torch_loom.patches import foreach_shardings

# What memory is for. Fragmentation: held by the allocator beside what is in use.
CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "workspace", "fragmentation")
_MEMORY_EVENT = struct.Struct("<qQqii")
_SPAN = struct.Struct("<qqihh")


class OpTime(NamedTuple):
    """Device time of an op: its name, its family, how often it ran, and the seconds in all."""

    name: str
    family: str
    calls: int
    seconds: float


class Span(NamedTuple):
    """When a command runs, in seconds."""

    name: str
    family: str
    device: int
    stream: int
    began: float
    ended: float


class Collectives(NamedTuple):
    """Collectives of a kind in groups of so many ranks: how many, and the bytes that this rank gave in all.

    Of messages that it received, the bytes received.
    """

    name: str
    num_ranks: int
    calls: int
    bytes: int


class MemoryPoint(NamedTuple):
    """Bytes in use by category, from a moment on."""

    seconds: float
    bytes: Mapping[str, int]


class DryRunPlan:
    """What a dry run took: of its devices while it is under way, and as they were at its end afterwards.

    Attributes:
        out_of_memory: the message of the error that ended the dry run, if memory had run out.
    """

    def __init__(
        self,
        recording: Recording,
        unwritten_files: Sequence[str],
        devices: tuple[Sequence[_C.DeviceConfig], Sequence[Mapping[str, float]]],
    ) -> None:
        self._world = _C.world()
        self._recording = recording
        self._devices = devices  # what they are made from, and the figures of their chips
        self._peaks: list[tuple[int, int]] | None = None
        self._capacities = [_C.mem_get_info(index)[0] for index in range(_C.device_count())]
        self._fractions: list[float] = []
        self._end_ns: int | None = None  # the dry run goes on
        self.out_of_memory: str | None = None
        self._group: PlannedGroup | None = None
        self._unwritten_files = unwritten_files
        self._reads: dict[str, int] = {}
        self._traffic_before = _traffic()
        self._traffic: dict[tuple[str, int], tuple[int, int]] | None = None

    def __repr__(self) -> str:
        peaks = ", ".join(f"{peak / 2**20:,.1f} MiB" for peak, _ in self._figures())
        ended = "" if self.out_of_memory is None else ", out of memory"
        return f"<DryRunPlan: {self.seconds * 1e3:,.3f} ms, peak memory by device: {peaks}{ended}>"

    @property
    def num_devices(self) -> int:
        """How many devices the dry run has."""
        return len(self._capacities)

    @property
    def world_size(self) -> int:
        """How many ranks the planned process group has; 1 if there is none. Set it within the dry run.

        Setting it makes the default group of ``torch.distributed``, of which this process is rank 0: sharding
        works as in the group, collectives take the time that they need over the chip's links, and no values
        come from other ranks. The group ends with the dry run.

        Raises:
            DryRunError: when it is set: the dry run has ended, or there is a default group already.
            ValueError: when it is set: not 1 to 65536.
        """
        return 1 if self._group is None else self._group.num_ranks

    @world_size.setter
    def world_size(self, num_ranks: int) -> None:
        self.join(num_ranks)

    def join(self, world_size: int, rank: int = 0) -> None:
        """Make the default group of ``torch.distributed``, and be one of its ranks.

        Args:
            world_size: how many ranks there are, 1 to 65536.
            rank: which of them this process is.

        Raises:
            DryRunError: the dry run has ended, or there is a default group already.
            ValueError: a number is out of range.
        """
        if not isinstance(world_size, int) or not 1 <= world_size <= MAX_RANKS:
            raise ValueError(f"plan.world_size must be 1 to {MAX_RANKS}, got {world_size!r}")
        if not isinstance(rank, int) or not 0 <= rank < world_size:
            raise ValueError(f"the rank must be 0 to {world_size - 1}, got {rank!r}")
        if self._peaks is not None:
            raise DryRunError("plan.world_size: the dry run has ended; set it within")
        if self._group is not None:
            self._group.end()
        self._group = PlannedGroup(world_size, rank)
        foreach_shardings.apply()

    def collectives(self) -> list[Collectives]:
        """Return what this rank has issued of collectives and messages, by kind and size of the group.

        A real group counts in the same place: :func:`torch_loom.distributed.traffic`.
        """
        traffic = _traffic() if self._traffic is None else self._traffic
        found = []
        for (name, num_ranks), (calls, size) in sorted(traffic.items()):
            calls_before, size_before = self._traffic_before.get((name, num_ranks), (0, 0))
            if calls > calls_before:
                found.append(Collectives(name, num_ranks, calls - calls_before, size - size_before))
        return found

    def exposed_seconds(self, device: Device = None) -> float:
        """Return how long collectives ran on a device while nothing else did, on any stream."""
        index = self._index(device)
        spans = [span for span in self.spans() if span.device == index]
        return _busy(spans) - _busy(span for span in spans if span.family != "collective")

    def capacity_bytes(self, device: Device = None) -> int:
        """Return the memory that a device has for tensors: all but what its driver and the process take.

        Arguments and errors are those of :meth:`peak_memory_bytes`.
        """
        return self._capacities[self._index(device)]

    def peak_memory_bytes(self, device: Device = None) -> int:
        """Return the most memory that tensors took on a device at a time, as ``max_memory_allocated()`` does.

        Args:
            device: one of the dry run's; the first one if None.

        Raises:
            InvalidDeviceError: the dry run has no such device.
        """
        return self._figures()[self._index(device)][0]

    def peak_reserved_bytes(self, device: Device = None) -> int:
        """Return the most memory that the allocator held on a device, cached blocks included; as above."""
        return self._figures()[self._index(device)][1]

    def memory_by_category(self, device: Device = None) -> dict[str, int]:
        """Return bytes by what they are for, at the moment when most were in use.

        Parameters (with buffers) are those of modules that were called and of optimizers; activations are
        whatever is none of the others. Fragmentation is what the allocator held at most beside the peak.
        """
        index = self._index(device)
        peak = _highest(self.memory_over_time(index))
        reserved = self._figures()[index][1]
        return {**peak, "fragmentation": max(0, reserved - sum(peak.values()))}

    def step_memory_by_category(self, device: Device = None) -> dict[str, int] | None:
        """Return bytes by category when most were in use after the setup; None if the peak was not in it.

        There is no fragmentation: what the allocator held is known of the whole program alone.
        """
        points = list(self.memory_over_time(device))
        num_setup = sum(
            event[3] == self._index(device) for event in self._events()[: self._recording.setup_events]
        )
        setup, steps = _highest(points[:num_setup]), _highest(points[num_setup:])
        if sum(setup.values()) <= sum(steps.values()):
            return None
        return {name: size for name, size in steps.items() if name != "fragmentation"}

    def batch_factor(self) -> float | None:
        """Return about how many times as large a batch fits on the devices: two digits, rounded down.

        What the program allocated is allocated once more, with larger activations. It may be too low: what
        grows with the batch is not known of each activation. 1,000 means that much or more.

        Returns:
            None if no memory grows with a batch.

        Raises:
            DryRunError: a dry run is under way.
        """
        events = self._events()
        noted = self._recording
        grows = growing(
            events, self._categories(events), noted.setup_events, noted.updates, noted.casts.found
        )
        if (reason := first_use.see_dry_run(*self._devices)) is not None:
            raise DryRunError(f"plan.batch_factor(): {reason}")
        try:
            for index, fraction in enumerate(self._fractions):
                _C.set_memory_fraction(index, fraction)
            return largest_factor(events, grows, self._capacities, [held for _, held in self._figures()])
        finally:
            first_use.see_program()

    def peak_stack(self, device: Device = None) -> list[Frame]:
        """Return the lines of Python, innermost first, where most memory was in use; none if none was."""
        return self._recording.frames(self._index(device))

    def memory_over_time(self, device: Device = None) -> Iterator[MemoryPoint]:
        """Yield bytes in use by category after each change, in the order of issue."""
        index = self._index(device)
        events = self._events()
        category_of = self._categories(events)
        used = dict.fromkeys(CATEGORIES, 0)
        current: dict[int, int] = {}
        for number, (time_ns, address, size, where, _) in enumerate(events):
            if where != index:
                continue
            owner = number if size > 0 else current.pop(address)
            if size > 0:
                current[address] = number
            used[category_of.get(owner, "activations")] += size
            yield MemoryPoint(time_ns * 1e-9, dict(used))

    def _events(self) -> list[Event]:
        return list(_MEMORY_EVENT.iter_unpack(self._recording.kept()[0]))

    def _categories(self, events: list[Event]) -> dict[int, str]:
        """Return what the allocation of an event turned out to be for."""
        found: dict[int, str] = {}
        current: dict[int, int] = {}
        marks = iter(self._recording.marks)
        mark = next(marks, None)
        for number in range(len(events) + 1):
            while mark is not None and mark.position <= number:
                if mark.address in current:
                    found.setdefault(current[mark.address], mark.category)
                mark = next(marks, None)
            if number == len(events):
                break
            _, address, size, _, is_workspace = events[number]
            if size > 0:
                current[address] = number
                if is_workspace:
                    found[number] = "workspace"
            else:
                current.pop(address, None)
        return found

    @property
    def unwritten_files(self) -> list[str]:
        """The paths that ``torch.save`` and ``safetensors`` were given, and which were left as they are."""
        return list(self._unwritten_files)

    def value_reads(self) -> dict[str, int]:
        """Return how often each line of the program read a value of a device, by ``"file:line"``.

        Those values do not exist: 0 was read. Where a branch depends on one, the plan may lack what follows.
        """
        if self._end_ns is None:
            self._note_reads()
        return dict(self._reads)

    def _note_reads(self) -> None:
        for line, count in _C.take_value_reads():
            self._reads[line] = self._reads.get(line, 0) + count

    @property
    def seconds(self) -> float:
        """Device time from the begin of the dry run until its devices have run all that was issued."""
        return (self._recording.now_ns() if self._end_ns is None else self._end_ns) * 1e-9

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Time of each step: from the end of setup or of one step to that of the next, waits for the host
        included.

        Steps are those of optimizers. Where no optimizer has the parameters, a step is what writes to
        parameters after a backward pass, until a module is called or the next pass begins.
        """
        ends = [self._recording.setup_ns or 0, *self._recording.step_ends]
        return tuple((end - begin) * 1e-9 for begin, end in pairwise(ends))

    @property
    def step_busy_seconds(self) -> tuple[float, ...]:
        """How long a device ran something in each of :attr:`step_seconds`; else all waited for the host.

        Of steps whose commands :meth:`spans` no longer has there is none.
        """
        ends = [self._recording.setup_ns or 0, *self._recording.step_ends]
        busy = _merged(self.spans())
        noted = busy[-1][1] if busy else 0.0
        found = []
        for begin_ns, end_ns in pairwise(ends):
            begin, end = begin_ns * 1e-9, end_ns * 1e-9
            if noted < begin:
                break
            within = sum(max(0.0, min(b, end) - max(a, begin)) for a, b in busy)
            found.append(min(within, (end_ns - begin_ns) * 1e-9))
        return tuple(found)

    @property
    def forward_seconds(self) -> tuple[float, ...]:
        """Time from each call of the model to the next one, or to the end; none if there are steps.

        Nor are there any where a backward pass ran. The model is the module whose call ended the setup.
        """
        if self._recording.step_ends or self._recording.has_backward:
            return ()
        end_ns = self._recording.now_ns() if self._end_ns is None else self._end_ns
        ends = [*self._recording.forward_begins, end_ns]
        return tuple((end - begin) * 1e-9 for begin, end in pairwise(ends))

    @property
    def is_training(self) -> bool:
        """Whether there were steps or backward passes, or the model was called so that they may follow."""
        return self._recording.is_training

    @property
    def model(self) -> str:
        """The class of the module whose first call ended the setup; "" if none did."""
        return self._recording.model

    @property
    def setup_seconds(self) -> float:
        """Device time until a module whose parameters are on a device was first called; 0 if none was.

        That is where models are made and copied, and the first batch with them.
        """
        return (self._recording.setup_ns or 0) * 1e-9

    def ops(self) -> list[OpTime]:
        """Return the ops that ran, those that took longest first; all devices together."""
        return _sorted(self._recording.kept()[2])

    def setup_ops(self) -> list[OpTime]:
        """Return those of :meth:`ops` that ran in the setup: see :attr:`setup_seconds`."""
        return _sorted(self._recording.setup_totals)

    def step_ops(self) -> list[OpTime]:
        """Return those of :meth:`ops` that ran after the setup."""
        setup = {(name, family): (calls, ns) for name, family, calls, ns in self._recording.setup_totals}
        rest = []
        for name, family, calls, ns in self._recording.kept()[2]:
            before_calls, before_ns = setup.get((name, family), (0, 0))
            if calls > before_calls:
                rest.append((name, family, calls - before_calls, ns - before_ns))
        return _sorted(rest)

    def seconds_by_family(self) -> dict[str, float]:
        """Return device time by family of ops (matmul, elementwise, …), the longest first."""
        families: dict[str, float] = defaultdict(float)
        for op in self.ops():
            families[op.family] += op.seconds
        return dict(sorted(families.items(), key=lambda each: -each[1]))

    def spans(self) -> Iterator[Span]:
        """Yield when commands run, in the order of issue: the first half million of them."""
        _, packed, totals = self._recording.kept()
        for began, ended, name, device, stream in _SPAN.iter_unpack(packed):
            yield Span(totals[name][0], totals[name][1], device, stream, began * 1e-9, ended * 1e-9)

    def utilisation(self, device: Device = None) -> float:
        """Return the share of the time in which a device runs something, on whichever stream."""
        index = self._index(device)
        busy = _busy(span for span in self.spans() if span.device == index)
        return busy / self.seconds if self.seconds > 0 else 0.0

    def _index(self, device: Device) -> int:
        index = 0 if device is None else _get_device_index(device, optional=True)
        if not 0 <= index < self.num_devices:
            raise InvalidDeviceError(
                f"invalid device {device!r}: the dry run's devices are 0 … {self.num_devices - 1}"
            )
        return index

    def _call_after_steps(self, callback: Callable[[], None]) -> None:
        """Have a callback called after each step; what it raises reaches the program."""
        self._recording.after_step = callback

    def _limit_reads(self, most: int) -> None:
        """Let a line of the program that reads a value more often than that raise an error."""
        _C.limit_value_reads(most)

    def _figures(self) -> list[tuple[int, int]]:
        return _peaks() if self._peaks is None else self._peaks

    def _end(self) -> None:
        _C.limit_value_reads(0)
        self._peaks = _peaks()
        self._fractions = [_C.memory_fraction(index) for index in range(self.num_devices)]
        self._end_ns = self._recording.now_ns()
        self._note_reads()
        try:
            if self._group is not None:
                self._group.end()
            self._traffic = _traffic()
        finally:
            end_planned_groups()
            self._recording.stop()


def _highest(points: Iterable[MemoryPoint]) -> dict[str, int]:
    """Return the bytes by category of the point with most of them."""
    found: Mapping[str, int] = max(
        (point.bytes for point in points),
        key=lambda each: sum(each.values()),
        default=dict.fromkeys(CATEGORIES, 0),
    )
    return dict(found)


def _busy(spans: Iterable[Span]) -> float:
    """Return for how many seconds one of them runs at least."""
    return sum(ended - began for began, ended in _merged(spans))


def _merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Return from when until when one of them runs at least, in order."""
    found: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda each: each.began):
        if found and span.began <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], span.ended)
        else:
            found.append((span.began, span.ended))
    return found


def _traffic() -> dict[tuple[str, int], tuple[int, int]]:
    return {(name, ranks): (calls, size) for name, ranks, calls, size in _C.collective_traffic()}


def _sorted(totals: Iterable[tuple[str, str, int, int]]) -> list[OpTime]:
    found = [OpTime(name, family, calls, ns * 1e-9) for name, family, calls, ns in totals]
    return sorted(found, key=lambda each: (-each.seconds, each.name))


def _peaks() -> list[tuple[int, int]]:
    all_stats = (_C.memory_stats(index) for index in range(_C.device_count()))
    return [
        (int(stats["allocated_bytes.all.peak"]), int(stats["reserved_bytes.all.peak"])) for stats in all_stats
    ]

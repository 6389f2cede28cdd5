"""Runs one program on the devices, race-free, beside a model of what every tensor must contain.

A program is a list of steps, each the name of an action and its numbers. Numbers that choose among tensors
count through those that are there, so that any list of steps is a program.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import torch_loom.device as loom

from .allocator_model import DEFAULT_POOL, ModelError
from .clocks import Accesses, Clocks, Times
from .ledger import Ledger

Step = list[Any]
DEVICES = 2
STREAMS = 4  # of each device; the first is the default stream
EVENTS = 2  # of each device
DTYPES = (torch.uint8, torch.int32, torch.float32)
NUMPY = {torch.uint8: np.uint8, torch.int32: np.int32, torch.float32: np.float32}
PINNED_BYTES = 1 << 16


@dataclass(eq=False)
class Storage:
    """Memory of one tensor and its views: the model's contents, and who has used it."""

    data: np.ndarray[Any, Any]
    device: int
    home: int
    address: int
    access: Accesses = field(default_factory=Accesses)
    handles: int = 1
    checked: bool = False


@dataclass(eq=False)
class Handle:
    """A tensor and the part of the model that it shows."""

    tensor: torch.Tensor
    array: np.ndarray[Any, Any]
    storage: Storage

    @property
    def is_whole(self) -> bool:
        """Whether nobody else sees the memory, and this one from its start."""
        tensor = self.tensor
        return self.storage.handles == 1 and tensor.is_contiguous() and tensor.storage_offset() == 0


@dataclass(eq=False)
class Captured:
    """A graph, and what a replay does to the model."""

    graph: Any
    device: int
    changes: list[tuple[str, Handle, Any]]
    pool: tuple[int, int]


class Machine:
    """The streams and events that all programs of a process share."""

    def __init__(self) -> None:
        self.streams = [
            loom.default_stream(device) if number == 0 else loom.Stream(device)
            for device in range(DEVICES)
            for number in range(STREAMS)
        ]
        self.capacity = loom.mem_get_info(0)[1]


class Executor:
    """The state of one program: tensors, events, graphs, clocks and ledgers. Actions are in `actions`."""

    def __init__(self, machine: Machine, exact: bool) -> None:
        for device in range(DEVICES):
            loom.synchronize(device)
            loom.empty_cache(device)
            loom.reset_peak_memory_stats(device)
            loom.reset_accumulated_memory_stats(device)
            loom.set_per_process_memory_fraction(1.0, device)
        self.machine = machine
        self.clocks = Clocks()
        self.ledgers = [Ledger(machine.capacity, exact) for _ in range(DEVICES)]
        self.handles: list[Handle] = []
        self.graphs: list[Captured] = []
        self.events = [loom.Event() for _ in range(DEVICES * EVENTS)]
        self.recorded: list[Times] = [{} for _ in self.events]
        self.pinned = [self.new_pinned() for _ in range(2)]
        self.out_of_memory: list[int] = []
        self.step = 0
        self.check_statistics()

    # --- what a step may rely on ---

    def new_pinned(self) -> Handle:
        """Return pinned host memory, all zeros."""
        data = np.zeros(PINNED_BYTES, np.uint8)
        tensor = torch.zeros(PINNED_BYTES, dtype=torch.uint8).pin_memory()
        return Handle(tensor, data, Storage(data, -1, -1, 0))

    def stream(self, number: int) -> Any:
        """Return the stream object."""
        return self.machine.streams[number]

    def order(self, stream: int, accesses: Times, how: int) -> None:
        """Let what `stream` does next come after `accesses`, where it does not yet."""
        for other in self.clocks.unordered(stream, accesses):
            times = dict(self.clocks.of(other))
            if how % 5 == 0:
                self.stream(stream).wait_stream(self.stream(other))
                self.clocks.wait(stream, times)
            elif how % 5 == 1:
                event = loom.Event()
                event.record(self.stream(other))
                self.stream(stream).wait_event(event)
                self.clocks.wait(stream, times)
            elif how % 5 == 2:
                self.stream(other).synchronize()
                self.clocks.synchronize(times)
            elif how % 5 == 3:
                self.stream(other).record_event().synchronize()
                self.clocks.synchronize(times)
            else:
                self.synchronize_device(other // STREAMS)

    def order_host(self, accesses: Times) -> None:
        """Let what the host does next come after `accesses`."""
        for other in self.clocks.unordered(None, accesses):
            self.stream(other).synchronize()
            self.clocks.synchronize(dict(self.clocks.of(other)))

    def synchronize_device(self, device: int) -> None:
        """Wait for all streams of a device."""
        loom.synchronize(device)
        for number in range(device * STREAMS, (device + 1) * STREAMS):
            self.clocks.synchronize(dict(self.clocks.of(number)))

    def use(self, stream: int, how: int, *, reads: list[Storage], writes: list[Storage]) -> None:
        """Order the next command of `stream` after what it must come after, and count it."""
        for storage in reads:
            self.order(stream, storage.access.writes, how)
        for storage in writes:
            self.order(stream, storage.access.all, how)
        time = self.clocks.submit(stream)
        for storage in reads:
            storage.access.note(stream, time, False)
        for storage in writes:
            storage.access.note(stream, time, True)
            storage.checked = False

    def pick(self, index: int, device: int | None = None) -> Handle | None:
        """Return one of the tensors, of that device if one is named; None if there is none."""
        found = [each for each in self.handles if device in (None, each.storage.device)]
        return found[index % len(found)] if found else None

    def adopt(self, tensor: torch.Tensor, home: int, data: np.ndarray[Any, Any]) -> Handle:
        """Take a new tensor, born on the stream `home`, into the program."""
        storage = Storage(data, home // STREAMS, home, tensor.untyped_storage().data_ptr())
        self.ledgers[storage.device].allocated(storage.address, data.nbytes, home)
        handle = Handle(tensor, data, storage)
        self.handles.append(handle)
        return handle

    def ran_out(self, home: int, requested: int, pool: tuple[int, int] = DEFAULT_POOL) -> None:
        """Note that there was no memory for `requested` bytes on the stream `home`."""
        self.out_of_memory.append(self.step)
        self.ledgers[home // STREAMS].out_of_memory(requested, home, pool)

    def drop(self, handle: Handle, how: int) -> None:
        """Let go of a tensor; with the last of its storage, order the free behind all uses."""
        storage = handle.storage
        for captured in [each for each in self.graphs if self.uses(each, storage)]:
            self.drop_graph(captured)
        self.handles.remove(handle)
        storage.handles -= 1
        if storage.handles == 0:
            ledger = self.ledgers[storage.device]
            if how % 3 == 0:
                for other in self.clocks.unordered(storage.home, storage.access.all):
                    if other // STREAMS == storage.device:
                        handle.tensor.record_stream(self.stream(other))
                        ledger.recorded(storage.address, storage.home, other)
                    else:
                        self.order(storage.home, {other: storage.access.all[other]}, how)
            else:
                self.order(storage.home, storage.access.all, how)
            ledger.freed(storage.address)
        del handle.tensor

    def uses(self, captured: Captured, storage: Storage) -> bool:
        """Return whether a replay touches a storage."""
        return any(
            handle.storage is storage or (isinstance(value, Handle) and value.storage is storage)
            for _, handle, value in captured.changes
        )

    def drop_graph(self, captured: Captured) -> None:
        """Reset a graph: its pool goes back with the next flush."""
        self.graphs.remove(captured)
        captured.graph.reset()
        model = self.ledgers[captured.device].model
        if model is not None:
            model.pools_in_use.discard(captured.pool)

    # --- checks ---

    def check_statistics(self) -> None:
        """Compare both devices' statistics with the ledgers."""
        for device, ledger in enumerate(self.ledgers):
            ledger.check(loom.memory_stats(device), loom.mem_get_info(device))

    def check_memory(self) -> None:
        """Compare the segments of both devices with the ledgers, then what is known of contents."""
        segments = loom.memory_snapshot()
        for device, ledger in enumerate(self.ledgers):
            ledger.check_snapshot([each for each in segments if each["device"] == device])
        self.check_contents()

    def check_contents(self) -> None:
        """Compare with the model what the host need not wait for any more."""
        seen: set[int] = set()
        for handle in self.handles:
            storage = handle.storage
            if storage.checked or id(storage) in seen or not storage.data.size:
                continue
            seen.add(id(storage))
            if not self.clocks.unordered(None, storage.access.writes):
                self._compare(handle.tensor.as_strided((storage.data.size,), (1,), 0), storage)
        for handle in self.pinned:
            storage = handle.storage
            if not storage.checked and not self.clocks.unordered(None, storage.access.writes):
                self._compare(handle.tensor, storage)

    def _compare(self, tensor: torch.Tensor, storage: Storage) -> None:
        storage.checked = True
        found = tensor.cpu().numpy()
        if storage.device >= 0:
            self.clocks.synchronize(dict(self.clocks.of(storage.device * STREAMS)))
        if not np.array_equal(found.view(np.uint8), storage.data.view(np.uint8)):
            wrong = np.flatnonzero(found != storage.data)
            first = wrong[0] if wrong.size else -1
            raise ModelError(
                f"{wrong.size} of {found.size} elements at {storage.address:#x} of device {storage.device} "
                f"are wrong, the first at {first}: {found[first]}, expected {storage.data[first]}"
            )

    def finish(self) -> list[int]:
        """Wait for everything, compare everything, let go of everything; return a digest of each tensor."""
        for device in range(DEVICES):
            self.synchronize_device(device)
        for handle in (*self.handles, *self.pinned):
            handle.storage.checked = False
        self.check_memory()
        digests = [zlib.crc32(each.array.tobytes()) for each in (*self.handles, *self.pinned)]
        for captured in list(self.graphs):
            self.drop_graph(captured)
        for handle in list(self.handles):
            self.drop(handle, 2)
        for device, ledger in enumerate(self.ledgers):
            loom.empty_cache(device)
            ledger.flushed()
        self.check_statistics()
        for device in range(DEVICES):
            if loom.memory_reserved(device) or loom.memory_allocated(device):
                raise ModelError(f"memory of device {device} is still in use: {loom.memory_stats(device)}")
        return digests

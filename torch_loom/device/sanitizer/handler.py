"""From the tape to errors: what each command means for clocks and histories."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from torch_loom import _C
from torch_loom._C import TapeReader
from torch_loom.device._explain.op_tags import Operand as TypedOperand
from torch_loom.device._explain.op_tags import OpTags
from torch_loom.device.sanitizer.clocks import EventId, StreamId, StreamSynchronizations, pack_stream
from torch_loom.device.sanitizer.history import Launch, Memory, TensorInfo, Use
from torch_loom.device.sanitizer.regions import Operand
from torch_loom.device.sanitizer.reports import SynchronizationError, report

_gather_traceback: Callable[[bool, bool, bool], Any] = torch._C._profiler.gather_traceback


class TapeHandler:
    """Analyses the tape for synchronization errors.

    A command that is refused leaves no trace: as it is not submitted, nothing can race with it. Commands that
    a graph captures do not run; each replay is reported as the commands that it stands for.

    Attributes:
        syncs: the clocks.
        memory: the blocks and their uses.
        seq_num: how many commands were reported.
    """

    def __init__(self) -> None:
        self.syncs = StreamSynchronizations()
        self.memory = Memory()
        self.seq_num = 0
        # By thread: the kernel that it has begun, and what that uses.
        self._begun: dict[int, tuple[Launch, tuple[Operand, ...]]] = {}
        self._tags = OpTags()
        self._notes: dict[int, Callable[[StreamId, EventId, int, bool], None]] = {
            TapeReader.RECORD_EVENT: self._handle_event_record,
            TapeReader.WAIT_EVENT: self._handle_event_wait,
            TapeReader.FREE: self._handle_memory_deallocation,
            TapeReader.RECORD_STREAM: self._handle_record_stream,
            TapeReader.SYNCHRONIZE_STREAM: self._handle_stream_synchronization,
            TapeReader.SYNCHRONIZE_EVENT: self._handle_event_synchronization,
            TapeReader.SYNCHRONIZE_DEVICE: self._handle_device_synchronization,
            TapeReader.QUERY_STREAM: self._handle_stream_synchronization,
            TapeReader.QUERY_EVENT: self._handle_event_synchronization,
            TapeReader.DESTROY_EVENT: self._handle_event_deletion,
        }

    def handle_note(
        self, kind: int, device: int, stream: int, event: int, address: int, num_bytes: int, is_captured: bool
    ) -> None:
        """Take in a command that uses no memory; the arguments are those of ``TapeReader.take_notes``."""
        handle = self._notes.get(kind)
        if handle is not None:
            # Device −1 stands for commands on an event alone.
            handle(pack_stream(max(device, 0), max(stream, 0)), event, address, is_captured)

    def handle_launch(
        self,
        kind: int,
        device: int,
        stream: int,
        operator: str,
        operands: tuple[TypedOperand, ...],
        address: int,
        num_bytes: int,
        is_captured: bool,
        host_waits: bool,
    ) -> list[SynchronizationError]:
        """Take in a command that uses memory, or allocates it; the arguments are those of ``TapeReader``.

        Returns:
            What is wrong with it. If anything is, the command must not be submitted.
        """
        if kind == TapeReader.FALLBACK:
            return []
        if kind == TapeReader.ALLOCATE:
            self._handle_memory_allocation(device, stream, address, num_bytes)
            return []
        own = pack_stream(device, stream)
        if is_captured:
            return []
        if self._tags.is_counted(operator, operands):
            self.syncs.all_streams_wait_for_stream(own)
        # A kernel that is watched says what it has used at its end.
        is_watched = kind == TapeReader.KERNEL and _C.kernel_accesses() is not None
        uses = () if is_watched else _uses_of(operands)
        moved = () if kind == TapeReader.KERNEL else uses
        launch, errors = self.launch(own, operator, uses, moved)
        if kind == TapeReader.KERNEL and not errors:
            self._begun[threading.get_ident()] = (launch, uses)
        if not errors and (host_waits or self._tags.is_read(operator)):
            self.syncs.all_streams_wait_for_stream(own)
        return errors

    def handle_kernel_end(
        self, device: int, stream: int, outputs: tuple[TypedOperand, ...], is_captured: bool, has_failed: bool
    ) -> list[SynchronizationError]:
        """Take in what the kernel that this thread has begun returned; the arguments are ``TapeReader``'s.

        Returns:
            What is wrong with the memory that it took for its results, or has used. The kernel has been
            submitted.
        """
        begun = self._begun.pop(threading.get_ident(), None)
        if begun is None or is_captured or has_failed or begun[0].stream != pack_stream(device, stream):
            return []
        launch, operands = begun
        accesses = _C.kernel_accesses()
        if accesses is not None:
            return self._handle_uses(launch, tuple(accesses))
        known = {operand[:4] for operand in operands}
        fresh = tuple(
            output for output in outputs if output[4] and output[:4] not in known and 0 not in output[1]
        )
        return self._handle_uses(launch, _uses_of(fresh))

    def launch(
        self, stream: StreamId, operator: str, operands: tuple[Operand, ...], moved: tuple[Operand, ...]
    ) -> tuple[Launch, list[SynchronizationError]]:
        """Take in a command that uses memory, ``moved`` of it as a copy.

        Returns:
            The command, and what is wrong with it.
        """
        self.seq_num += 1
        stack, places = _gather_traceback(True, False, False), _places(moved)
        launch = Launch(self.seq_num, stream, operator, stack, moved, places)
        errors = self._handle_uses(launch, operands)
        if not errors:
            self.syncs.update_seq_num(stream, launch.seq_num)
        return launch, errors

    def _handle_uses(self, launch: Launch, operands: tuple[Operand, ...]) -> list[SynchronizationError]:
        tensors = [self.memory.find(operand[0]) for operand in operands]
        errors = [
            report(Use(launch, operand, tensor), previous)
            for operand, tensor in zip(operands, tensors, strict=True)
            if not tensor.is_only_used_by(launch.stream)
            for previous in tensor.unordered(operand, launch.stream, self.syncs)
        ]
        if not errors:
            for operand, tensor in zip(operands, tensors, strict=True):
                tensor.add(operand, launch)
        return errors

    def _handle_memory_allocation(self, device: int, stream: int, address: int, num_bytes: int) -> None:
        # Pinned host memory is handed out again when what used it has finished.
        is_pinned = device < 0
        owner = pack_stream(max(device, 0), stream)
        block = TensorInfo(address, num_bytes, owner, _gather_traceback(True, False, False))
        self.memory.allocate(block, is_shared=not is_pinned)

    def _handle_memory_deallocation(
        self, stream: StreamId, event: EventId, address: int, is_captured: bool
    ) -> None:
        self.memory.free(address, self.syncs)

    def _handle_record_stream(
        self, stream: StreamId, event: EventId, address: int, is_captured: bool
    ) -> None:
        block = self.memory.blocks.get(address)
        if block is not None:
            block.recorded.add(stream)

    def _handle_event_record(self, stream: StreamId, event: EventId, address: int, is_captured: bool) -> None:
        if is_captured:
            self.syncs.delete_event(event)  # it orders commands of the graph
        else:
            self.syncs.record_state(event, stream)

    def _handle_event_wait(self, stream: StreamId, event: EventId, address: int, is_captured: bool) -> None:
        if not is_captured:
            self.syncs.stream_wait_for_event(stream, event)

    def _handle_event_deletion(
        self, stream: StreamId, event: EventId, address: int, is_captured: bool
    ) -> None:
        self.syncs.delete_event(event)

    def _handle_event_synchronization(
        self, stream: StreamId, event: EventId, address: int, is_captured: bool
    ) -> None:
        self.syncs.all_streams_wait_for_event(event)

    def _handle_stream_synchronization(
        self, stream: StreamId, event: EventId, address: int, is_captured: bool
    ) -> None:
        self.syncs.all_streams_wait_for_stream(stream)

    def _handle_device_synchronization(
        self, stream: StreamId, event: EventId, address: int, is_captured: bool
    ) -> None:
        self.syncs.sync_all_streams(stream >> 32)
        self.memory.forget_finished(self.syncs)


def _uses_of(operands: tuple[TypedOperand, ...]) -> tuple[Operand, ...]:
    """Return each operand once, as written if it is so at one of its places; without the dtype."""
    kept: dict[tuple[object, ...], Operand] = {}
    for address, sizes, strides, item_bytes, is_written, _ in operands:
        key = (address, sizes, strides, item_bytes)
        if key not in kept or is_written:
            kept[key] = (*key, is_written)
    return tuple(kept.values())


def _places(moved: tuple[Operand, ...]) -> tuple[str, str]:
    """Return what a copy goes from and to. Memory of the host that is not pinned is not among its ranges."""
    names = {is_written: _C.place_of(address) for address, _, _, _, is_written in moved}
    return names.get(False, "cpu"), names.get(True, "cpu")

"""The handler of ``torch.cuda._sanitizer``, for programs that call it themselves instead of running ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch_loom.device.sanitizer.clocks import EventId, StreamId
from torch_loom.device.sanitizer.handler import TapeHandler
from torch_loom.device.sanitizer.reports import SynchronizationError


class EventHandler:
    """Takes in launches, events and synchronisations, as PyTorch's own handler, one call each.

    Memory is known by its address alone: two addresses have no byte in common.
    """

    def __init__(self) -> None:
        self._own = TapeHandler()

    def _handle_kernel_launch(
        self,
        stream: StreamId,
        read_only: Iterable[int],
        read_write: Iterable[int],
        outputs: Iterable[int],
        operator: str,
        tensor_aliases: Mapping[int, Sequence[str]],
    ) -> list[SynchronizationError]:
        used = {**dict.fromkeys(read_only, False), **dict.fromkeys(read_write, True)}
        operands = tuple((address, (1,), (1,), 1, is_written) for address, is_written in used.items())
        _, errors = self._own.launch(stream, operator, operands, ())
        return errors

    def _handle_event_creation(self, event: EventId) -> None:
        self._own.syncs.delete_event(event)  # an earlier event of this number

    def _handle_event_deletion(self, event: EventId) -> None:
        self._own.syncs.delete_event(event)

    def _handle_event_record(self, event: EventId, stream: StreamId) -> None:
        self._own.syncs.record_state(event, stream)

    def _handle_event_wait(self, event: EventId, stream: StreamId) -> None:
        self._own.syncs.stream_wait_for_event(stream, event)

    def _handle_event_synchronization(self, event: EventId) -> None:
        self._own.syncs.all_streams_wait_for_event(event)

    def _handle_memory_allocation(self, data_ptr: int) -> None:
        self._handle_memory_deallocation(data_ptr)

    def _handle_memory_deallocation(self, data_ptr: int) -> None:
        self._own.memory.free(data_ptr, self._own.syncs)

    def _handle_stream_creation(self, stream: StreamId) -> None:
        pass  # a stream is known from its first command on

    def _handle_stream_synchronization(self, stream: StreamId) -> None:
        self._own.syncs.all_streams_wait_for_stream(stream)

    def _handle_device_synchronization(self) -> None:
        self._own.syncs.sync_all_streams(0)

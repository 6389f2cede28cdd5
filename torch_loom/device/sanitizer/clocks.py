"""Vector clocks: which command comes before which.

Commands are numbered in the order in which they are issued, over all streams. The clock of a stream says, for
every stream, up to which number that stream's commands have finished when its own next command starts.
"""

from __future__ import annotations

StreamId = int
EventId = int
SeqNum = int
Clock = dict[StreamId, SeqNum]

_DEVICE_SHIFT = 32


def pack_stream(device: int, stream: int) -> StreamId:
    """Return one number for a stream of a device; on device 0 it is the stream's own id."""
    # An allocator names streams of other devices than its own with device + 1 in the upper half.
    if stream >> _DEVICE_SHIFT:
        device, stream = (stream >> _DEVICE_SHIFT) - 1, stream & ((1 << _DEVICE_SHIFT) - 1)
    return device << _DEVICE_SHIFT | stream


def unpack_stream(stream: StreamId) -> tuple[int, int]:
    """Return the device's index and the stream's own id."""
    return stream >> _DEVICE_SHIFT, stream & ((1 << _DEVICE_SHIFT) - 1)


def _merge(clock: Clock, other: Clock) -> None:
    for stream, seq_num in other.items():
        if seq_num > clock.get(stream, -1):
            clock[stream] = seq_num


class StreamSynchronizations:
    """The clocks of all streams, of recorded events and of the host.

    Streams and events are known from the first command on; an event that was never recorded orders nothing.
    The default stream is a stream like the others.

    Attributes:
        current_sync_states: the clock of each stream, without what it knows through the host.
        recorded_sync_states: the clock that each event was recorded with last.
        host_sync_state: what the host has waited for; every command issued later comes after it.
    """

    def __init__(self) -> None:
        self.current_sync_states: dict[StreamId, Clock] = {}
        self.recorded_sync_states: dict[EventId, Clock] = {}
        self.host_sync_state: Clock = {}

    def clock_of(self, stream: StreamId) -> Clock:
        """Return the clock of a stream."""
        clock = self.current_sync_states.get(stream)
        if clock is None:
            clock = self.current_sync_states[stream] = {}
        return clock

    def update_seq_num(self, stream: StreamId, seq_num: SeqNum) -> None:
        """Note a command of a stream."""
        self.clock_of(stream)[stream] = seq_num

    def record_state(self, event: EventId, stream: StreamId) -> None:
        """Note that an event was recorded; streams that waited for an earlier record keep what they know."""
        self.recorded_sync_states[event] = self.clock_of(stream).copy()

    def delete_event(self, event: EventId) -> None:
        """Forget an event: it ended, or its last record orders nothing yet."""
        self.recorded_sync_states.pop(event, None)

    def stream_wait_for_event(self, stream: StreamId, event: EventId) -> None:
        """Put a stream's later commands after an event."""
        _merge(self.clock_of(stream), self.recorded_sync_states.get(event, {}))

    def all_streams_wait_for_event(self, event: EventId) -> None:
        """Note that the host knows an event to have finished."""
        _merge(self.host_sync_state, self.recorded_sync_states.get(event, {}))

    def all_streams_wait_for_stream(self, stream: StreamId) -> None:
        """Note that the host knows a stream to have finished."""
        _merge(self.host_sync_state, self.clock_of(stream))

    def sync_all_streams(self, device: int) -> None:
        """Note that the host has waited for all streams of a device."""
        for stream, clock in self.current_sync_states.items():
            if unpack_stream(stream)[0] == device:
                _merge(self.host_sync_state, clock)

    def is_ordered_after(self, current_stream: StreamId, seq_num: SeqNum, other_stream: StreamId) -> bool:
        """Return whether a command of another stream has finished before this stream's next starts."""
        if current_stream == other_stream or self.is_finished(seq_num, other_stream):
            return True
        return seq_num <= self.clock_of(current_stream).get(other_stream, -1)

    def is_finished(self, seq_num: SeqNum, stream: StreamId) -> bool:
        """Return whether the host knows that a command has finished."""
        return seq_num <= self.host_sync_state.get(stream, -1)

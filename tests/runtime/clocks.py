"""Happens-before between the host and the streams, with vector clocks: what a program may touch unordered."""

from __future__ import annotations

from dataclasses import dataclass, field

Times = dict[int, int]


def join(into: Times, other: Times) -> None:
    """Let `into` know all that `other` knows."""
    for stream, time in other.items():
        if into.get(stream, 0) < time:
            into[stream] = time


@dataclass
class Clocks:
    """What each stream, and the host, has waited for: the newest known time of every stream."""

    streams: dict[int, Times] = field(default_factory=dict)
    host: Times = field(default_factory=dict)

    def of(self, stream: int) -> Times:
        """Return what work submitted to `stream` now comes after: what the host has waited for, too."""
        times = self.streams.setdefault(stream, {})
        join(times, self.host)
        return times

    def submit(self, stream: int) -> int:
        """Count one more command of `stream` and return its time."""
        times = self.of(stream)
        times[stream] = times.get(stream, 0) + 1
        return times[stream]

    def wait(self, stream: int, times: Times) -> None:
        """Let later work of `stream` come after `times`."""
        join(self.of(stream), times)

    def synchronize(self, times: Times) -> None:
        """Let the host, and all that is submitted later, come after `times`."""
        join(self.host, times)

    def unordered(self, stream: int | None, accesses: Times) -> Times:
        """Return those of `accesses` that `stream` (the host if None) has not waited for."""
        known = self.host if stream is None else self.of(stream)
        return {other: time for other, time in accesses.items() if known.get(other, 0) < time}


@dataclass
class Accesses:
    """The last accesses to one piece of memory, by stream, and the last writes among them."""

    all: Times = field(default_factory=dict)
    writes: Times = field(default_factory=dict)

    def note(self, stream: int, time: int, write: bool) -> None:
        """Add an access that came after all those it has to come after."""
        self.all[stream] = time
        if write:
            self.writes = {stream: time}

"""The uses of memory: those of each live block, and those of freed blocks that may not be over."""

from __future__ import annotations

import bisect
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch_loom.device.sanitizer.clocks import SeqNum, StreamId, StreamSynchronizations
from torch_loom.device.sanitizer.regions import Operand, covers, overlap
from torch_loom.device.sanitizer.stacks import program_frames

__all__ = ["Launch", "Memory", "TensorInfo", "Use"]

# The most uses kept of a block: by each stream while it lives, by each stream after it was freed, and how
# many freed blocks a new block remembers in its memory. What is older is forgotten: a race with it is missed.
_MAX_USES = 128
_MAX_FREED_USES = 8
_MAX_EARLIER = 16
_MAX_FREED_RANGES = 65536
_MAX_UNKNOWN_PAGES = 4096

_ROUNDING = 512  # the allocator's
_PAGE_SHIFT = 21


@dataclass(slots=True)
class Launch:
    """A command that uses memory.

    Attributes:
        seq_num: its number in the order of all commands.
        stream: the stream that it was issued to.
        operator: the op, or what the command is called.
        stack: the Python stack that issued it, not yet in words.
        moved: the ranges of bytes that a copy or a fill uses; memory of the host that is not pinned is not
            among them.
        places: what a copy goes from and to, as of when it was issued: "cpu", "pinned memory" or a
            device.
    """

    seq_num: SeqNum
    stream: StreamId
    operator: str
    stack: Any
    moved: tuple[Operand, ...] = ()
    places: tuple[str, str] = ("cpu", "cpu")

    def stack_trace(self) -> traceback.StackSummary:
        """Return the Python stack that issued the command, the innermost frame last."""
        return program_frames(self.stack)


@dataclass(slots=True)
class Use:
    """One tensor of one command."""

    launch: Launch
    operand: Operand
    tensor: TensorInfo


class TensorInfo:
    """A block of memory and its uses.

    Attributes:
        address: where it starts.
        end: the address behind its last byte.
        stream: the stream that it was allocated for.
        recorded: the streams that ``record_stream`` has recorded for the block.
        earlier: freed blocks that lay in the same memory, with uses that may not be over.
    """

    __slots__ = ("_stack", "_uses", "address", "earlier", "end", "newest", "recorded", "stream")

    def __init__(self, address: int, num_bytes: int, stream: StreamId, stack: Any) -> None:
        self.address = address
        self.end = address + num_bytes
        self.stream = stream
        self.recorded: set[StreamId] = set()
        self.earlier: list[TensorInfo] = []
        self.newest: dict[StreamId, SeqNum] = {}
        self._uses: dict[StreamId, dict[Operand, Launch]] = {}
        self._stack = stack

    @property
    def allocation_stack_trace(self) -> traceback.StackSummary | None:
        """The Python stack that allocated it; None if that was before the sanitizer was enabled."""
        return None if self._stack is None else program_frames(self._stack)

    def is_only_used_by(self, stream: StreamId) -> bool:
        """Return whether no other stream has a use here: a quick answer to most questions."""
        newest = self.newest
        return not self.earlier and (not newest or (len(newest) == 1 and stream in newest))

    def unordered(self, operand: Operand, stream: StreamId, syncs: StreamSynchronizations) -> Iterator[Use]:
        """Yield the last use of each stream that a use by ``stream`` would race with."""
        for tensor in (self, *self.earlier) if self.earlier else (self,):
            for other, newest in tensor.newest.items():
                if not syncs.is_ordered_after(stream, newest, other):
                    yield from tensor._conflict(operand, stream, other, syncs)

    def _conflict(
        self, operand: Operand, stream: StreamId, other: StreamId, syncs: StreamSynchronizations
    ) -> Iterator[Use]:
        last: Use | None = None
        for earlier, launch in self._uses[other].items():
            if not (operand[4] or earlier[4]) or syncs.is_ordered_after(stream, launch.seq_num, other):
                continue
            is_later = last is None or launch.seq_num > last.launch.seq_num
            if is_later and overlap(operand, earlier):
                last = Use(launch, earlier, self)
        if last is not None:
            yield last

    def add(self, operand: Operand, launch: Launch) -> None:
        """Note a use that races with none before it."""
        if operand[4] and covers(operand, self.address, self.end):
            # A later use that races with an earlier use races with this one, too.
            self._uses.clear()
            self.newest.clear()
            self.earlier = []
        uses = self._uses.get(launch.stream)
        if uses is None:
            uses = self._uses[launch.stream] = {}
        else:
            uses.pop(operand, None)
        uses[operand] = launch
        if len(uses) > _MAX_USES:
            del uses[next(iter(uses))]
        self.newest[launch.stream] = launch.seq_num

    def uses(self) -> Iterator[Use]:
        """Yield the uses that are kept, by stream, the oldest first."""
        for uses in self._uses.values():
            for operand, launch in uses.items():
                yield Use(launch, operand, self)

    def is_over(self, syncs: StreamSynchronizations) -> bool:
        """Return whether the host knows that every use has finished."""
        return all(syncs.is_finished(newest, stream) for stream, newest in self.newest.items())

    def set_free(self, syncs: StreamSynchronizations) -> None:
        """Forget the uses that cannot race with the next use of this memory."""
        # The allocator waits for recorded streams before it hands the memory out again.
        for stream in list(self.newest):
            if stream in self.recorded or syncs.is_finished(self.newest[stream], stream):
                del self.newest[stream], self._uses[stream]
        for stream, uses in self._uses.items():
            if len(uses) > _MAX_FREED_USES:
                self._uses[stream] = dict(list(uses.items())[-_MAX_FREED_USES:])
        self.earlier = [tensor for tensor in self.earlier if not tensor.is_over(syncs)]


class _FreedRanges:
    """Memory that is free, by address, with the blocks that lay there last."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, list[TensorInfo]]] = {}

    def put(self, start: int, end: int, tensors: list[TensorInfo]) -> None:
        if len(self._starts) >= _MAX_FREED_RANGES:
            self._pop(bisect.bisect_left(self._starts, next(iter(self._ranges))))
        bisect.insort(self._starts, start)
        self._ranges[start] = (end, tensors)

    def take(self, start: int, end: int) -> list[TensorInfo]:
        """Return the blocks that lay there; what is left of their memory stays."""
        found: list[TensorInfo] = []
        index = bisect.bisect_right(self._starts, start) - 1
        if index < 0 or self._ranges[self._starts[index]][0] <= start:
            index += 1
        while index < len(self._starts) and self._starts[index] < end:
            own_start, own_end, tensors = self._pop(index)
            found += [tensor for tensor in tensors if tensor not in found]
            if own_start < start:
                self.put(own_start, start, tensors)
                index += 1
            if own_end > end:
                self.put(end, own_end, tensors)
        return found

    def _pop(self, index: int) -> tuple[int, int, list[TensorInfo]]:
        start = self._starts.pop(index)
        return start, *self._ranges.pop(start)

    def forget_finished(self, syncs: StreamSynchronizations) -> None:
        self._ranges = {
            start: (end, tensors)
            for start, (end, tensors) in self._ranges.items()
            if not all(tensor.is_over(syncs) for tensor in tensors)
        }
        self._starts = sorted(self._ranges)

    def __len__(self) -> int:
        return len(self._starts)


class Memory:
    """The live blocks, and what may still be using free memory."""

    def __init__(self) -> None:
        self.blocks: dict[int, TensorInfo] = {}
        self._starts: list[int] = []
        self._freed = _FreedRanges()
        # Memory whose allocation was not reported: taken before the sanitizer was enabled, or a graph's own.
        self._unknown: dict[int, TensorInfo] = {}

    def find(self, address: int) -> TensorInfo:
        """Return the block that an address lies in."""
        block = self.blocks.get(address)
        if block is not None:
            return block
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0:
            block = self.blocks[self._starts[index]]
            if address < block.end:
                return block
        page = address >> _PAGE_SHIFT
        known = self._unknown.get(page)
        if known is None:
            if len(self._unknown) >= _MAX_UNKNOWN_PAGES:
                del self._unknown[next(iter(self._unknown))]
            # Without end: no use covers it all.
            known = self._unknown[page] = TensorInfo(page << _PAGE_SHIFT, 1 << 62, 0, None)
        return known

    def allocate(self, block: TensorInfo, is_shared: bool) -> None:
        """Note a new block; ``is_shared``: its memory may have uses that are not over."""
        end = block.address + -(-(block.end - block.address) // _ROUNDING) * _ROUNDING
        self._remove_overlapped(block.address, end)
        earlier = self._freed.take(block.address, end)
        if is_shared:
            block.earlier = earlier[-_MAX_EARLIER:]
        bisect.insort(self._starts, block.address)
        self.blocks[block.address] = block
        self._forget_unknown(block.address, end)

    def free(self, address: int, syncs: StreamSynchronizations) -> None:
        """Note that a block was freed; what may still be using it is kept."""
        block = self._remove(address)
        if block is None:
            self._forget_unknown(address, address + 1)
            return
        block.set_free(syncs)
        tensors = [block, *block.earlier] if block.newest else block.earlier
        block.earlier = []
        if tensors:
            end = address + -(-(block.end - address) // _ROUNDING) * _ROUNDING
            self._freed.put(address, end, tensors)

    def forget_finished(self, syncs: StreamSynchronizations) -> None:
        """Forget the uses of free memory that have finished."""
        self._freed.forget_finished(syncs)

    @property
    def num_freed_ranges(self) -> int:
        """How many pieces of free memory may still be in use."""
        return len(self._freed)

    def _remove(self, address: int) -> TensorInfo | None:
        block = self.blocks.pop(address, None)
        if block is not None:
            self._starts.pop(bisect.bisect_left(self._starts, address))
        return block

    def _remove_overlapped(self, start: int, end: int) -> None:
        # The frees of pinned blocks are not reported, and nothing was reported while the sanitizer was
        # disabled.
        index = bisect.bisect_right(self._starts, start) - 1
        if index >= 0 and self.blocks[self._starts[index]].end > start:
            self._remove(self._starts[index])
        index = bisect.bisect_left(self._starts, start)
        while index < len(self._starts) and self._starts[index] < end:
            self._remove(self._starts[index])

    def _forget_unknown(self, start: int, end: int) -> None:
        if not self._unknown:
            return
        pages = range(start >> _PAGE_SHIFT, (end - 1 >> _PAGE_SHIFT) + 1)
        for page in pages if len(pages) < len(self._unknown) else list(self._unknown):
            if page in pages:
                self._unknown.pop(page, None)

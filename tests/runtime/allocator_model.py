"""The caching allocator's rules, written a second time: which blocks it may hand out, and its statistics.

Among free blocks of one size the model follows the allocator: where several are right, any is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20
Pool = tuple[int, int]
DEFAULT_POOL: Pool = (0, 0)


class ModelError(AssertionError):
    """The allocator did what its rules do not allow."""


def round_up(size: int, granule: int) -> int:
    """Return `size` rounded up to a multiple of `granule`."""
    return -(-size // granule) * granule


def segment_bytes(block_bytes: int) -> int:
    """Return what is taken from the device for a block."""
    if block_bytes <= MIB:
        return 2 * MIB
    return 20 * MIB if block_bytes < 10 * MIB else round_up(block_bytes, 2 * MIB)


@dataclass
class Stat:
    """One counted quantity, as the allocator counts it."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        """Count `amount` more, or less if negative."""
        self.current += amount
        self.allocated += max(amount, 0)
        self.freed += max(-amount, 0)
        self.peak = max(self.peak, self.current)


@dataclass(eq=False)
class Block:
    """A part of a segment; `streams`: those recorded on it, `pending`: freed, and waiting for them."""

    address: int
    size: int
    requested: int = 0
    used: bool = False
    pending: bool = False
    streams: set[int] = field(default_factory=set)


@dataclass(eq=False)
class Segment:
    """Memory taken from the device, and its blocks by address."""

    address: int
    size: int
    stream: int
    small: bool
    pool: Pool
    blocks: list[Block]

    def whole(self) -> bool:
        """Return whether nothing of it is in use."""
        return len(self.blocks) == 1 and not self.blocks[0].used


STATS = ("segment", "active", "allocated_bytes", "reserved_bytes", "active_bytes")


class AllocatorModel:
    """The allocator of one device when no work is ever pending: events have finished as soon as recorded."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.limit = capacity  # what the process may take of it
        self.segments: list[Segment] = []
        self.pools_in_use: set[Pool] = set()
        self.live: dict[int, tuple[Segment, Block]] = {}
        self.waiting: list[tuple[Segment, Block]] = []
        self.stats = {name: Stat() for name in STATS}
        self.counts = dict.fromkeys(("num_alloc_retries", "num_device_alloc", "num_device_free"), 0)

    def reset_peaks(self) -> None:
        """Set all peaks to what is current."""
        for stat in self.stats.values():
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """Set all totals to zero."""
        for stat in self.stats.values():
            stat.allocated = stat.freed = 0
        self.counts = dict.fromkeys(self.counts, 0)

    def allocate(self, requested: int, stream: int, pool: Pool, address: int | None) -> None:
        """Follow an allocation that returned `address`, or ran out of memory if None.

        Raises:
            ModelError: the rules say otherwise.
        """
        capturing = pool != DEFAULT_POOL
        if not capturing:
            self._finish_waiting()
        rounded = round_up(requested, 512)
        found = self._best(rounded, stream, pool)
        size = segment_bytes(rounded)
        room = self._free_bytes() >= size
        if not found and not room and not capturing:
            self.flush()
            self.counts["num_alloc_retries"] += 1
            found = self._best(rounded, stream, pool)
            room = self._free_bytes() >= size
        if address is None:
            if found or room:
                raise ModelError(f"out of memory for {requested} bytes, with {found} or {size} bytes free")
            return
        if found:
            chosen = [(segment, block) for segment, block in found if block.address == address]
            if not chosen:
                raise ModelError(f"{requested} bytes at {address:#x}, which is none of {found}")
            self._hand_out(*chosen[0], requested, rounded)
        elif room:
            self._hand_out(
                *self._new_segment(address, size, stream, rounded <= MIB, pool), requested, rounded
            )
        else:
            raise ModelError(f"{requested} bytes at {address:#x}, though {size} bytes are not free")

    def free(self, address: int) -> None:
        """Follow a free of a live block."""
        segment, block = self.live.pop(address)
        self.stats["allocated_bytes"].add(-block.size)
        if block.streams:
            block.pending = True
            self.waiting.append((segment, block))
        else:
            self._release(segment, block)

    def record_stream(self, address: int, stream: int) -> None:
        """Follow a `record_stream`."""
        segment, block = self.live[address]
        if stream != segment.stream:
            block.streams.add(stream)

    def flush(self) -> None:
        """Give back every segment that nothing uses, but those of private pools in use."""
        self._finish_waiting()
        for segment in list(self.segments):
            if segment.whole() and segment.pool not in self.pools_in_use:
                self.segments.remove(segment)
                self.stats["segment"].add(-1)
                self.stats["reserved_bytes"].add(-segment.size)
                self.counts["num_device_free"] += 1

    def inactive_split(self) -> tuple[int, int]:
        """Return the number and the bytes of free blocks in segments that are in use in part."""
        sizes = [
            block.size
            for segment in self.segments
            if len(segment.blocks) > 1
            for block in segment.blocks
            if not block.used
        ]
        return len(sizes), sum(sizes)

    def layout(self) -> dict[int, list[tuple[int, int, bool]]]:
        """Return the blocks of each segment by its address: address, bytes, and whether in use."""
        return {
            segment.address: [(block.address, block.size, block.used) for block in segment.blocks]
            for segment in self.segments
        }

    def _free_bytes(self) -> int:
        return self.limit - self.stats["reserved_bytes"].current

    def _finish_waiting(self) -> None:
        for segment, block in self.waiting:
            self._release(segment, block)
        self.waiting.clear()

    def _best(self, rounded: int, stream: int, pool: Pool) -> list[tuple[Segment, Block]]:
        fitting = [
            (segment, block)
            for segment in self.segments
            if (segment.pool, segment.stream, segment.small) == (pool, stream, rounded <= MIB)
            for block in segment.blocks
            if not block.used and block.size >= rounded
        ]
        smallest = min((block.size for _, block in fitting), default=0)
        return [(segment, block) for segment, block in fitting if block.size == smallest]

    def _new_segment(
        self, address: int, size: int, stream: int, small: bool, pool: Pool
    ) -> tuple[Segment, Block]:
        for other in self.segments:
            if address < other.address + other.size and other.address < address + size:
                raise ModelError(f"a segment of {size} bytes at {address:#x} overlaps {other}")
        block = Block(address, size)
        segment = Segment(address, size, stream, small, pool, [block])
        self.segments.append(segment)
        self.stats["segment"].add(1)
        self.stats["reserved_bytes"].add(size)
        self.counts["num_device_alloc"] += 1
        return segment, block

    def _hand_out(self, segment: Segment, block: Block, requested: int, rounded: int) -> None:
        rest = block.size - rounded
        if rest >= 512 if segment.small else rest > MIB:
            segment.blocks.insert(segment.blocks.index(block) + 1, Block(block.address + rounded, rest))
            block.size = rounded
        block.used, block.requested = True, requested
        self.live[block.address] = (segment, block)
        self.stats["allocated_bytes"].add(block.size)
        self.stats["active"].add(1)
        self.stats["active_bytes"].add(block.size)

    def _release(self, segment: Segment, block: Block) -> None:
        self.stats["active"].add(-1)
        self.stats["active_bytes"].add(-block.size)
        block.used = block.pending = False
        block.streams = set()
        merged: list[Block] = []
        for each in segment.blocks:
            if merged and not merged[-1].used and not each.used:
                merged[-1].size += each.size
            else:
                merged.append(each)
        segment.blocks = merged

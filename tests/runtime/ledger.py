"""What the statistics of a device must say, and that no two live blocks overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .allocator_model import DEFAULT_POOL, MIB, AllocatorModel, ModelError, Pool, Stat, round_up

# A block of the large pool is at most this much larger than asked for; one of the small pool never is.
MAX_UNSPLIT = MIB
# States of a block in a snapshot.
LIVE, FREE = "active_allocated", "inactive"
FIGURES = ("current", "peak", "allocated", "freed")


@dataclass
class Live:
    """A block in use: bytes asked for, and the other streams recorded on it."""

    requested: int
    streams: set[int] = field(default_factory=set)

    @property
    def rounded(self) -> int:
        """Bytes after rounding."""
        return round_up(self.requested, 512)

    @property
    def pool(self) -> str:
        """The pool that it is counted in."""
        return "small_pool" if self.rounded <= MIB else "large_pool"


class Ledger:
    """Follows a device's allocations. `exact`: no work is ever pending, so that the allocator's every choice
    is foreseen; else what does not depend on timing is."""

    def __init__(self, capacity: int, exact: bool) -> None:
        self.capacity = capacity
        self.model = AllocatorModel(capacity) if exact else None
        self.live: dict[int, Live] = {}
        self.count = {pool: Stat() for pool in ("all", "small_pool", "large_pool")}
        self.small_bytes = Stat()
        self.requested_total = 0
        self.num_ooms = 0
        self.pending_requested = 0

    def allocated(self, address: int, requested: int, stream: int, pool: Pool = DEFAULT_POOL) -> None:
        """Follow an allocation of `requested` bytes at `address`."""
        if requested == 0:
            return
        block = Live(requested)
        for other, its in self.live.items():
            if address < other + its.rounded and other < address + block.rounded:
                raise ModelError(f"{block} at {address:#x} overlaps {its} at {other:#x}")
        if address % 512:
            raise ModelError(f"{block} at {address:#x} is not aligned")
        if self.model is not None:
            self.model.allocate(requested, stream, pool, address)
        self.live[address] = block
        self._count(block, 1)
        self.requested_total += requested

    def freed(self, address: int) -> None:
        """Follow a free."""
        if address == 0:
            return
        block = self.live.pop(address)
        self._count(block, -1)
        if block.streams:
            self.pending_requested += block.requested
        if self.model is not None:
            self.model.free(address)

    def passed(self, requested: int) -> None:
        """Follow an allocation from cache, of the small pool, that was given back at once."""
        block = Live(requested)
        self._count(block, 1)
        self._count(block, -1)
        self.requested_total += requested
        if self.model is not None:
            for name, amount in (
                ("allocated_bytes", block.rounded),
                ("active_bytes", block.rounded),
                ("active", 1),
            ):
                self.model.stats[name].add(amount)
                self.model.stats[name].add(-amount)

    def recorded(self, address: int, home: int, stream: int) -> None:
        """Follow a `record_stream`."""
        if address == 0 or home == stream:
            return
        self.live[address].streams.add(stream)
        if self.model is not None:
            self.model.record_stream(address, stream)

    def out_of_memory(self, requested: int, stream: int, pool: Pool = DEFAULT_POOL) -> None:
        """Follow an allocation that failed."""
        self.num_ooms += 1
        if self.model is not None:
            self.model.allocate(requested, stream, pool, None)

    def flushed(self) -> None:
        """Follow an `empty_cache`."""
        self.pending_requested = 0
        if self.model is not None:
            self.model.flush()

    def limited(self, fraction: float) -> None:
        """Follow a `set_per_process_memory_fraction`."""
        if self.model is not None:
            self.model.limit = int(fraction * self.capacity)

    def reset_peaks(self) -> None:
        """Follow `reset_peak_memory_stats`."""
        for stat in (*self.count.values(), self.small_bytes):
            stat.peak = stat.current
        if self.model is not None:
            self.model.reset_peaks()

    def reset_accumulated(self) -> None:
        """Follow `reset_accumulated_memory_stats`."""
        for stat in (*self.count.values(), self.small_bytes):
            stat.allocated = stat.freed = 0
        self.requested_total = self.num_ooms = 0
        if self.model is not None:
            self.model.reset_accumulated()

    def check(self, stats: Mapping[str, int], memory: tuple[int, int]) -> None:
        """Compare with what the device says.

        Raises:
            ModelError: a figure is wrong.
        """
        expected = {f"requested_bytes.all.{name}": value for name, value in self._requested(stats).items()}
        expected["num_ooms"] = self.num_ooms
        for pool, stat in self.count.items():
            expected |= {f"allocation.{pool}.{figure}": getattr(stat, figure) for figure in FIGURES}
        expected |= {
            f"allocated_bytes.small_pool.{name}": getattr(self.small_bytes, name) for name in FIGURES
        }
        reserved, active = stats["reserved_bytes.all.current"], stats["active_bytes.all.current"]
        expected["cached.current"] = reserved - active
        expected["allocated.current"] = stats["allocated_bytes.all.current"]
        expected["reserved.current"] = self.capacity - memory[0]
        expected["active_bytes.all.current"] = (
            stats["active_bytes.small_pool.current"] + stats["active_bytes.large_pool.current"]
        )
        if self.model is not None:
            expected |= self._exact(self.model)
        wrong = {name: (stats[name], value) for name, value in expected.items() if stats[name] != value}
        if wrong:
            raise ModelError(f"statistics (found, expected): {wrong}")
        self._check_bounds(stats)

    def check_snapshot(self, segments: Iterable[Mapping[str, Any]]) -> None:
        """Compare with the device's segments: blocks fill them, and exactly what is live is in use.

        Raises:
            ModelError: a block is wrong.
        """
        live: dict[int, int] = {}
        layout: dict[int, list[tuple[int, int, bool]]] = {}
        for segment in segments:
            blocks = segment["blocks"]
            ends = [segment["address"], *(block["address"] + block["size"] for block in blocks)]
            starts = [*(block["address"] for block in blocks), segment["address"] + segment["total_size"]]
            if starts != ends:
                raise ModelError(f"blocks do not fill their segment: {segment}")
            live |= {each["address"]: each["requested_size"] for each in blocks if each["state"] == LIVE}
            layout[segment["address"]] = [
                (block["address"], block["size"], block["state"] != FREE) for block in blocks
            ]
        expected = {address: block.requested for address, block in self.live.items()}
        if live != expected:
            raise ModelError(f"live blocks are {live}, expected {expected}")
        if self.model is not None and layout != self.model.layout():
            raise ModelError(f"segments are {layout}, expected {self.model.layout()}")

    def _requested(self, stats: Mapping[str, int]) -> dict[str, int]:
        live = sum(block.requested for block in self.live.values())
        found = stats["requested_bytes.all.current"]
        # What waits for other streams counts until the allocator has noticed that they are done.
        current = found if live <= found <= live + self.pending_requested else live
        return {"current": current, "allocated": self.requested_total}

    def _check_bounds(self, stats: Mapping[str, int]) -> None:
        large = [block.rounded for block in self.live.values() if block.pool == "large_pool"]
        found = stats["allocated_bytes.large_pool.current"]
        right = sum(large) <= found <= sum(large) + MAX_UNSPLIT * len(large)
        chain = [stats[f"{name}_bytes.all.current"] for name in ("allocated", "active", "reserved")] + [
            self.capacity
        ]
        right &= chain == sorted(chain) and stats["reserved_bytes.all.current"] % (2 * MIB) == 0
        right &= all(
            stats[f"{name}.peak"] >= stats[f"{name}.current"] for name in ("active", "cached", "reserved")
        )
        if not right:
            raise ModelError(f"large blocks {large} with statistics {dict(stats)}")

    def _exact(self, model: AllocatorModel) -> dict[str, int]:
        expected = dict(model.counts)
        for name, stat in model.stats.items():
            expected |= {f"{name}.all.{figure}": getattr(stat, figure) for figure in FIGURES}
        number, size = model.inactive_split()
        return {**expected, "inactive_split.all.current": number, "inactive_split_bytes.all.current": size}

    def _count(self, block: Live, sign: int) -> None:
        self.count["all"].add(sign)
        self.count[block.pool].add(sign)
        if block.pool == "small_pool":
            self.small_bytes.add(sign * block.rounded)

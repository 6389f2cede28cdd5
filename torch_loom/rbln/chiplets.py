"""A device's memory by NPU and chiplet.

A device has one pool of memory. It counts as spread evenly over the chiplets of its NPUs, by their
capacities: each has its share of every tensor, and all run out together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch_loom import _C, config
from torch_loom.rbln.devices import npu_memories, num_chiplets

GRANULARITY = 2 << 20
"""What the allocator takes of a device: whole multiples of 2 MiB."""

_COUNTERS = ("num_", "lazy.pending_tensors", "lazy.materializations")
_COLUMNS = (
    ("allocated.current", "allocated"),
    ("allocated.peak", "alloc peak"),
    ("reserved.current", "reserved"),
    ("reserved.peak", "resv peak"),
    ("active.current", "active"),
    ("cached.current", "cached"),
)
_MIB = 1 << 20


class Unit(NamedTuple):
    """A chiplet of a device: the place of its NPU in the device, its own place there, and its bytes."""

    npu: int
    chiplet: int
    capacity: int


def units(index: int) -> list[Unit]:
    """Return the chiplets of an existing device, NPU by NPU."""
    chiplets = num_chiplets(index)
    return [
        Unit(npu, chiplet, own)
        for npu, memory in enumerate(npu_memories(index))
        for chiplet, own in enumerate(_shares(memory, [1] * chiplets))
    ]


def _shares(value: int, weights: Sequence[int]) -> Iterator[int]:
    """Yield whole parts of a value, by weight, that add up to it."""
    whole, passed, given = sum(weights), 0, 0
    for weight in weights:
        passed += weight
        upto = value * passed // whole
        yield upto - given
        given = upto


def stats(index: int, of_device: Mapping[str, int]) -> dict[str, int]:
    """Return the statistics of a device by chiplet; what is counted and not measured is on the first."""
    own = units(index)
    found: dict[str, int] = {}
    for key, value in of_device.items():
        parts = [value, *[0] * (len(own) - 1)]
        if not key.startswith(_COUNTERS):
            parts = list(_shares(value, [unit.capacity for unit in own]))
        for unit, part in zip(own, parts, strict=True):
            found[f"npu.{unit.npu}.chiplet.{unit.chiplet}.{key}"] = part
    return found


def info(index: int) -> dict[str, int]:
    """Return what is free and used of a device by chiplet, and by NPU. All in bytes."""
    free, total = _C.mem_get_info(index)
    own = units(index)
    weights = [unit.capacity for unit in own]
    found: dict[str, int] = {}
    sums: dict[int, list[int]] = {}
    for unit, used in zip(own, _shares(total - free, weights), strict=True):
        key = f"npu.{unit.npu}.chiplet.{unit.chiplet}"
        left = unit.capacity - used
        found |= {f"{key}.total": unit.capacity, f"{key}.used": used, f"{key}.free": left}
        # One range of addresses: what is free is free in one piece. There are no huge pages of a chip's.
        found |= {f"{key}.largest_free": left, f"{key}.largest_free_huge": 0}
        sums.setdefault(unit.npu, []).extend((unit.capacity, used))
    for npu, numbers in sums.items():
        capacity, used = sum(numbers[::2]), sum(numbers[1::2])
        found |= {f"npu.{npu}.total": capacity, f"npu.{npu}.used": used, f"npu.{npu}.free": capacity - used}
        found |= {f"npu.{npu}.granularity": GRANULARITY, f"npu.{npu}.huge_granularity": 0}
    return found


def table(index: int, of_device: Mapping[str, int]) -> str:
    """Return the statistics as a table for people: a row for each chiplet, and the sum."""
    by_chiplet = stats(index, of_device)
    heading = f"{'npu':>5}{'chiplet':>9}" + "".join(f"{title:>13}" for _, title in _COLUMNS)
    rule = "-" * len(heading)

    def line(start: str, value_of: Callable[[str], int]) -> str:
        return start + "".join(f"{value_of(key) / _MIB:>13.1f}" for key, _ in _COLUMNS)

    npus = (0,) if _C.world() else config.resolve().groups[index]
    rows = [
        line(
            f"{npus[unit.npu]:>5}{unit.chiplet:>9}",
            lambda key, unit=unit: by_chiplet[f"npu.{unit.npu}.chiplet.{unit.chiplet}.{key}"],  # type: ignore[misc]
        )
        for unit in units(index)
    ]
    lines = [
        f"Memory of rbln:{index} in MiB: the caching allocator of process {os.getpid()}, and no other's",
        "npu: as torch.rbln.device_summary() numbers them",
        heading,
        rule,
        *rows,
        rule,
        line(f"{'total':>14}", lambda key: of_device[key]),
        f"alloc retries: {of_device['num_alloc_retries']}   ooms: {of_device['num_ooms']}",
    ]
    return "\n".join(lines) + "\n"

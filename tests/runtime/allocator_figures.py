"""What tests of the caching allocator alone read of it."""

from __future__ import annotations

from torch_loom._C_testing import allocator

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def figure(fresh: allocator.Allocator, name: str) -> int:
    return fresh.stats()[name]


def reserved(fresh: allocator.Allocator) -> int:
    return figure(fresh, "reserved_bytes.all.current")


def live(fresh: allocator.Allocator) -> list[tuple[int, int]]:
    return [(b[0], b[1]) for s in fresh.segments() for b in s["blocks"] if b[3]]

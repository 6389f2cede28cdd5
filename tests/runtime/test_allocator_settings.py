"""The settings of the caching allocator alone, those of ``PYTORCH_ALLOC_CONF``."""

from __future__ import annotations

import pytest
from torch_loom._C_testing import allocator

from tests.runtime.allocator_figures import GIB, KIB, MIB, figure, live, reserved


def test_max_split_size(fresh: allocator.Allocator) -> None:
    fresh.configure(max_split_mb=32)
    large = fresh.allocate(100 * MIB)
    fresh.deallocate(large)
    assert fresh.allocate(20 * MIB) != large  # too small for a block above the limit
    assert fresh.allocate(60 * MIB) != large  # not of about its size
    assert fresh.allocate(90 * MIB) == large
    assert (large, 100 * MIB) in live(fresh)  # not split
    stats = fresh.stats()
    assert stats["max_split_size"] == 32 * MIB
    assert stats["oversize_allocations.current"] == stats["oversize_segments.current"] == 2


def test_oversize_blocks_go_back_first(fresh: allocator.Allocator) -> None:
    fresh.configure(max_split_mb=32)
    small, large = fresh.allocate(40 * MIB), fresh.allocate(150 * MIB)
    fresh.deallocate(small)
    fresh.deallocate(large)
    assert fresh.allocate(100 * MIB) != 0
    assert sorted(s["total_size"] for s in fresh.segments()) == [40 * MIB, 100 * MIB]
    assert figure(fresh, "num_alloc_retries") == 0


@pytest.mark.parametrize(
    ("divisions", "asked", "block"),
    [
        ([4] * 16, 1200 * KIB, 1280 * KIB),
        ([4] * 16, 1100, 1536),
        ([8] * 16, 1280 * KIB, 1280 * KIB),
        ([0, 0, 2] + [0] * 13, 5 * MIB, 6 * MIB),
        ([0, 0, 2] + [0] * 13, 3 * MIB + 1, 3 * MIB + 512),
        ([1] * 16, 1200 * KIB + 1, 1200 * KIB + 512),
    ],
)
def test_rounding_to_parts_of_powers_of_two(
    fresh: allocator.Allocator, divisions: list[int], asked: int, block: int
) -> None:
    fresh.configure(roundup_power2_divisions=divisions)
    address = fresh.allocate(asked)
    assert live(fresh) == [(address, block)]
    assert figure(fresh, "requested_bytes.all.current") == asked


def test_garbage_collection(fresh: allocator.Allocator) -> None:
    fresh.configure(garbage_collection_threshold=0.5)
    old, young = fresh.allocate(60 * MIB), fresh.allocate(70 * MIB)
    fresh.deallocate(old)
    for _ in range(10):
        fresh.deallocate(fresh.allocate(512))
        fresh.deallocate(fresh.allocate(2 * MIB))
    fresh.deallocate(young)
    fresh.allocate(90 * MIB)
    # 150 MiB were held and half of 256 is the threshold: the block unused for longer went back.
    assert sorted(s["total_size"] // MIB for s in fresh.segments()) == [2, 20, 70, 90]


def test_expandable_segments(fresh: allocator.Allocator) -> None:
    fresh.configure(expandable_segments=True)
    for megabytes in (10, 50, 100, 150):
        fresh.deallocate(fresh.allocate(megabytes * MIB))
    (segment,) = fresh.segments()
    assert segment["is_expandable"]
    assert segment["total_size"] == 160 * MIB
    first = fresh.allocate(150 * MIB)
    fresh.deallocate(first)
    kept = fresh.allocate(30 * MIB)
    assert kept == first
    fresh.empty_cache()  # the end of the segment goes back, though a part of it is in use
    assert reserved(fresh) == 40 * MIB  # the pages of 20 MiB that it lies in
    fresh.deallocate(kept)
    fresh.empty_cache()
    assert fresh.segments() == []
    assert figure(fresh, "inactive_split.all.peak") == 0
    # As in CUDA's statistics, which count what was mapped, and no segment.
    assert figure(fresh, "segment.all.peak") == 0
    assert figure(fresh, "num_device_alloc") == 4
    assert figure(fresh, "num_device_free") == 2


def test_holes_of_expandable_segments_are_unmapped(fresh: allocator.Allocator) -> None:
    fresh.configure(expandable_segments=True)
    blocks = [fresh.allocate(30 * MIB) for _ in range(6)]
    start = blocks[0]
    assert blocks == [start + number * 30 * MIB for number in range(6)]
    fresh.deallocate(blocks[1])
    fresh.deallocate(blocks[3])
    assert reserved(fresh) == 180 * MIB
    fresh.empty_cache()
    shown = [((s["address"] - start) // MIB, s["total_size"] // MIB) for s in fresh.segments()]
    assert shown == [(0, 40), (60, 40), (120, 60)]
    assert reserved(fresh) == 140 * MIB
    # The rest of the hole before the pages and the pages together, lowest first.
    assert fresh.allocate(30 * MIB) == blocks[1]
    assert reserved(fresh) == 160 * MIB
    assert fresh.allocate(10 * MIB) == blocks[3]
    assert reserved(fresh) == 160 * MIB
    assert fresh.allocate(20 * MIB) == blocks[3] + 10 * MIB
    assert [s["total_size"] // MIB for s in fresh.segments()] == [180]


def test_small_pages_of_expandable_segments(fresh: allocator.Allocator) -> None:
    fresh.configure(expandable_segments=True)
    blocks = [fresh.allocate(MIB) for _ in range(8)]
    assert reserved(fresh) == 8 * MIB
    for block in blocks[1:6]:
        fresh.deallocate(block)
    fresh.empty_cache()
    assert reserved(fresh) == 4 * MIB  # pages of 2 MiB: [0, 2) and [6, 8)
    assert figure(fresh, "reserved_bytes.small_pool.current") == 4 * MIB


def test_holes_go_back_before_memory_runs_out() -> None:
    fresh = allocator.Allocator("null", 16 * GIB, 1)
    fresh.configure(expandable_segments=True)
    blocks = [fresh.allocate(GIB) for _ in range(10)]
    start = blocks[0]
    for block in blocks[::2]:
        fresh.deallocate(block)
    large = fresh.allocate(8 * GIB)
    assert large == start + 10 * GIB
    page = 20 * MIB
    pages = {
        number
        for block, size in [*((block, GIB) for block in blocks[1::2]), (large, 8 * GIB)]
        for number in range((block - start) // page, -(-(block - start + size) // page))
    }
    assert reserved(fresh) == len(pages) * page
    assert figure(fresh, "num_alloc_retries") == 1
    assert figure(fresh, "num_ooms") == 0


def test_best_fit_leaves_the_end_that_can_grow(fresh: allocator.Allocator) -> None:
    fresh.configure(expandable_segments=True)
    inner, _, end = (fresh.allocate(size * MIB) for size in (40, 20, 20))
    fresh.deallocate(end)  # 20 MiB, and what can be mapped behind it
    fresh.deallocate(inner)
    assert fresh.allocate(20 * MIB) == inner
    assert fresh.allocate(40 * MIB) == end


def test_expandable_segments_that_were_switched_off_serve_nobody(fresh: allocator.Allocator) -> None:
    fresh.configure(expandable_segments=True)
    grown = fresh.allocate(20 * MIB)
    fresh.deallocate(grown)
    fresh.configure(expandable_segments=False)
    plain = fresh.allocate(20 * MIB)
    assert plain != grown
    assert [s["is_expandable"] for s in fresh.segments() if s["address"] == plain] == [False]
    fresh.deallocate(plain)
    fresh.empty_cache()
    assert reserved(fresh) == 0


def test_a_limit_counts_what_the_request_takes(fresh: allocator.Allocator) -> None:
    fresh.configure(expandable_segments=True)
    fresh.set_memory_fraction(100 / 256)
    kept = fresh.allocate(90 * MIB)  # of 100: pages
    assert reserved(fresh) == 100 * MIB
    with pytest.raises(MemoryError, match=r"100\.00 MiB allowed; "):
        fresh.allocate(20 * MIB)
    fresh.deallocate(kept)
    fresh.allocate(95 * MIB)

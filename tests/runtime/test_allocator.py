"""The caching allocator alone: CUDA's rules, on a driver that executes nothing, without tensors."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator

import pytest
from torch_loom._C_testing import allocator, driver

from tests.runtime.allocator_figures import GIB, KIB, MIB, figure, live, reserved


@pytest.mark.parametrize(
    ("asked", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, KIB, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (21 * MIB, 21 * MIB, 22 * MIB),
    ],
)
def test_rounding_and_segments(fresh: allocator.Allocator, asked: int, block: int, segment: int) -> None:
    address = fresh.allocate(asked)
    remainder = segment - block
    splits = remainder >= 512 if block <= MIB else remainder > MIB
    size = block if splits else segment
    assert live(fresh) == [(address, size)]
    assert [s["total_size"] for s in fresh.segments()] == [segment]
    assert figure(fresh, "allocated.current") == size
    assert figure(fresh, "requested_bytes.all.current") == asked
    assert figure(fresh, "inactive_split.all.current") == int(splits)
    fresh.deallocate(address)
    assert figure(fresh, "allocated.current") == figure(fresh, "inactive_split.all.current") == 0
    assert reserved(fresh) == segment == figure(fresh, "cached.current")


def test_zero_bytes_take_nothing(fresh: allocator.Allocator) -> None:
    assert fresh.allocate(0) == 0
    fresh.deallocate(0)
    assert figure(fresh, "allocation.all.allocated") == reserved(fresh) == 0


def test_best_fit_and_coalescing(fresh: allocator.Allocator) -> None:
    a, b, c, d = (fresh.allocate(size) for size in (300 * KIB, 100 * KIB, 200 * KIB, 100 * KIB))
    fresh.deallocate(a)
    fresh.deallocate(c)
    # The hole of 200 KiB fits better than the one of 300, and than the rest of the segment.
    assert fresh.allocate(150 * KIB) == c
    assert fresh.allocate(250 * KIB) == a
    for address in (a, c, b, d):
        fresh.deallocate(address)
    (segment,) = fresh.segments()
    assert [(block[1], block[3]) for block in segment["blocks"]] == [(2 * MIB, False)]
    assert fresh.allocate(2 * MIB - 512 - MIB) == a


def test_pools_do_not_mix(fresh: allocator.Allocator) -> None:
    fresh.deallocate(fresh.allocate(12 * MIB))
    fresh.allocate(512)
    assert [s["is_large"] for s in fresh.segments()].count(True) == 1
    assert figure(fresh, "segment.small_pool.current") == figure(fresh, "segment.large_pool.current") == 1


def test_streams_do_not_share(fresh: allocator.Allocator) -> None:
    address = fresh.allocate(MIB, 0)
    fresh.deallocate(address)
    assert fresh.allocate(MIB, 1) != address
    assert fresh.allocate(MIB, 0) == address
    assert {s["stream"] for s in fresh.segments()} == {0, 1}


def test_bad_frees_change_nothing(fresh: allocator.Allocator) -> None:
    address = fresh.allocate(4 * KIB)
    before = fresh.stats()
    for bad in (address + 512, 12345, 2**64 - 1):
        with pytest.raises(driver.InvalidArgument, match="not a live allocation of device 0"):
            fresh.deallocate(bad)
    fresh.deallocate(address)
    with pytest.raises(driver.InvalidArgument, match="freed twice"):
        fresh.deallocate(address)
    assert before["allocated.current"] == 4 * KIB
    assert figure(fresh, "allocated.current") == 0


def test_flush_and_retry(fresh: allocator.Allocator) -> None:
    fresh.deallocate(fresh.allocate(200 * MIB))
    kept = fresh.allocate(512)
    assert fresh.allocate(100 * MIB, 1) != 0
    stats = fresh.stats()
    assert stats["num_alloc_retries"] == 1
    assert stats["num_device_free"] == 1
    assert stats["num_ooms"] == 0
    fresh.deallocate(kept)


@pytest.mark.parametrize("asked", [200 * MIB, GIB, 2**62, 2**63, 2**64 - 1])
def test_out_of_memory(fresh: allocator.Allocator, asked: int) -> None:
    kept = fresh.allocate(100 * MIB)
    with pytest.raises(driver.OutOfMemory, match=r"^out of memory\. Tried to allocate ") as caught:
        fresh.allocate(asked)
    text = str(caught.value)
    if asked > 2**60:
        assert "more than 1EB" in text, "CUDA says no figures of such a request"
    else:
        for part in ("256.00 MiB", "156.00 MiB is free", "100.00 MiB is allocated", "0 bytes is reserved"):
            assert part in text
    assert caught.value.free_bytes == 156 * MIB
    assert live(fresh) == [(kept, 100 * MIB)]
    assert figure(fresh, "num_ooms") == 1
    assert fresh.allocate(150 * MIB) != 0


def test_memory_fraction(fresh: allocator.Allocator) -> None:
    fresh.set_memory_fraction(0.5)
    kept = fresh.allocate(100 * MIB)
    with pytest.raises(driver.OutOfMemory, match=r"128\.00 MiB allowed"):
        fresh.allocate(40 * MIB)
    fresh.deallocate(kept)
    assert fresh.allocate(128 * MIB) != 0
    with pytest.raises(driver.InvalidArgument, match="0~1"):
        fresh.set_memory_fraction(1.5)
    with pytest.raises(driver.InvalidArgument, match="nan"):
        fresh.set_memory_fraction(float("nan"))


def test_only_whole_segments_go_back(fresh: allocator.Allocator) -> None:
    part = fresh.allocate(2 * MIB)
    whole = fresh.allocate(30 * MIB)
    fresh.deallocate(whole)
    fresh.empty_cache()
    assert [s["total_size"] for s in fresh.segments()] == [20 * MIB]
    fresh.deallocate(part)
    fresh.empty_cache()
    assert fresh.segments() == []
    stats = fresh.stats()
    assert stats["reserved.current"] == stats["cached.current"] == stats["segment.all.current"] == 0
    assert stats["num_device_alloc"] == stats["num_device_free"] == 2


@pytest.fixture
def busy(fresh: allocator.Allocator) -> Iterator[threading.Event]:
    """Stream 1 runs a kernel until the event is set."""
    started, gate = threading.Event(), threading.Event()

    def kernel() -> None:
        started.set()
        gate.wait(60)

    thread = threading.Thread(target=fresh.submit, args=(1, kernel))
    thread.start()
    assert started.wait(60)
    yield gate
    gate.set()
    thread.join()


def wait_for_stream_1(fresh: allocator.Allocator) -> None:
    done = threading.Event()
    fresh.submit(1, done.set)
    assert done.wait(60)


class TestRecordStream:
    @pytest.fixture
    def fresh(self) -> allocator.Allocator:
        """A driver that runs kernels."""
        return allocator.Allocator("virtual", 256 * MIB, 3)

    def test_reused_once_the_other_stream_is_past_the_free(
        self, fresh: allocator.Allocator, busy: threading.Event
    ) -> None:
        address = fresh.allocate(MIB)
        fresh.record_stream(address, 1)
        fresh.deallocate(address)
        stats = fresh.stats()
        assert stats["allocated.current"] == 0
        assert stats["active.current"] == MIB
        assert stats["active.all.current"] == 1
        assert [b[3:] for s in fresh.segments() for b in s["blocks"] if b[4]] == [(False, True)]
        assert fresh.allocate(MIB) != address
        busy.set()
        wait_for_stream_1(fresh)
        assert fresh.allocate(MIB) == address
        assert figure(fresh, "active.all.current") == 2

    def test_idle_streams_delay_nothing(self, fresh: allocator.Allocator) -> None:
        address = fresh.allocate(MIB)
        fresh.record_stream(address, 2)
        fresh.record_stream(address, 0)
        fresh.deallocate(address)
        assert fresh.allocate(MIB) == address

    def test_captures_defer_it(self, fresh: allocator.Allocator) -> None:
        address = fresh.allocate(MIB)
        fresh.record_stream(address, 2)
        fresh.begin_allocate_to_pool((7, 0), stream=1)
        fresh.deallocate(address)
        assert fresh.allocate(MIB) != address
        fresh.end_allocate_to_pool((7, 0))
        assert fresh.allocate(MIB) == address

    def test_emptying_waits(self, fresh: allocator.Allocator, busy: threading.Event) -> None:
        address = fresh.allocate(30 * MIB)
        fresh.record_stream(address, 1)
        fresh.deallocate(address)
        emptied = threading.Thread(target=fresh.empty_cache)
        emptied.start()
        emptied.join(0.05)
        assert emptied.is_alive()
        assert reserved(fresh) == 30 * MIB
        busy.set()
        emptied.join(60)
        assert reserved(fresh) == 0
        assert figure(fresh, "num_sync_all_streams") == 1

    def test_unknown_streams(self, fresh: allocator.Allocator) -> None:
        address = fresh.allocate(MIB)
        with pytest.raises(driver.InvalidArgument, match="no stream 9"):
            fresh.record_stream(address, 9)
        fresh.record_stream(address + 512, 1)
        fresh.deallocate(address)
        assert fresh.allocate(MIB) == address

    def test_a_kernel_may_run_out_of_memory(self, fresh: allocator.Allocator) -> None:
        """It cannot wait for its own stream, and does not have to."""
        fresh.deallocate(fresh.allocate(200 * MIB, 1))
        found: list[int] = []
        done = threading.Event()

        def kernel() -> None:
            found.append(fresh.allocate(100 * MIB, 1))
            done.set()

        fresh.submit(1, kernel)
        assert done.wait(60)
        assert found[0] != 0
        assert reserved(fresh) == 200 * MIB or reserved(fresh) == 100 * MIB


class TestPrivatePools:
    def test_serve_only_their_own(self, fresh: allocator.Allocator) -> None:
        fresh.deallocate(fresh.allocate(MIB))
        fresh.begin_allocate_to_pool((1, 0))
        private = fresh.allocate(MIB)
        fresh.end_allocate_to_pool((1, 0))
        fresh.deallocate(private)
        assert {s["pool_id"] for s in fresh.segments()} == {(0, 0), (1, 0)}
        assert fresh.allocate(MIB) != private
        fresh.begin_allocate_to_pool((1, 0))
        assert fresh.allocate(MIB) == private
        assert fresh.allocate(MIB, 1) not in (0, private)
        assert figure(fresh, "segment.small_pool.current") == 3

    def test_live_until_released(self, fresh: allocator.Allocator) -> None:
        fresh.begin_allocate_to_pool((1, 0))
        address = fresh.allocate(30 * MIB)
        fresh.end_allocate_to_pool((1, 0))
        fresh.deallocate(address)
        fresh.empty_cache()
        assert reserved(fresh) == 30 * MIB
        assert fresh.pool_use_count((1, 0)) == 1
        fresh.release_pool((1, 0))
        fresh.empty_cache()
        assert reserved(fresh) == fresh.pool_use_count((1, 0)) == 0
        with pytest.raises(driver.InvalidArgument, match=r"\(1, 0\)"):
            fresh.release_pool((1, 0))

    def test_blocks_outlive_the_release(self, fresh: allocator.Allocator) -> None:
        fresh.begin_allocate_to_pool((0, 5))
        address = fresh.allocate(30 * MIB)
        fresh.end_allocate_to_pool((0, 5))
        fresh.release_pool((0, 5))
        fresh.empty_cache()
        assert live(fresh) == [(address, 30 * MIB)]
        fresh.deallocate(address)
        fresh.empty_cache((0, 5))
        assert fresh.segments() == []

    def test_misuse(self, fresh: allocator.Allocator) -> None:
        fresh.begin_allocate_to_pool((1, 0))
        with pytest.raises(driver.Error, match="already"):
            fresh.begin_allocate_to_pool((1, 0))
        assert fresh.pool_use_count((1, 0)) == 1
        fresh.end_allocate_to_pool((1, 0))
        with pytest.raises(driver.Error, match="no allocations"):
            fresh.end_allocate_to_pool((1, 0))
        with pytest.raises(driver.InvalidArgument, match="no private pool"):
            fresh.use_pool((0, 0))

    def test_no_split(self, fresh: allocator.Allocator) -> None:
        fresh.use_pool((0, 3), no_split=True)
        fresh.begin_allocate_to_pool((0, 3), capturing=False)
        first, second = fresh.allocate(512), fresh.allocate(512)
        assert sorted(size for _, size in live(fresh)) == [2 * MIB, 2 * MIB]
        assert first != second

    def test_use_on_oom(self, fresh: allocator.Allocator) -> None:
        fresh.use_pool((0, 4), use_on_oom=True)
        fresh.begin_allocate_to_pool((0, 4), capturing=False)
        address = fresh.allocate(200 * MIB)
        fresh.end_allocate_to_pool((0, 4))
        fresh.deallocate(address)
        assert fresh.allocate(100 * MIB) == address
        with pytest.raises(driver.OutOfMemory, match=r"with 100\.00 MiB allocated in private pools"):
            fresh.allocate(200 * MIB)


def test_statistics_are_reset(fresh: allocator.Allocator) -> None:
    fresh.deallocate(fresh.allocate(4 * MIB))
    kept = fresh.allocate(MIB)
    fresh.reset_peak_stats()
    fresh.reset_accumulated_stats()
    stats = fresh.stats()
    assert stats["allocated.peak"] == stats["allocated.current"] == MIB
    assert stats["reserved.peak"] == stats["reserved.current"] == 22 * MIB
    assert stats["cached.peak"] == stats["cached.current"] == 21 * MIB
    assert stats["active.peak"] == stats["active.current"] == MIB
    for name, value in stats.items():
        if name.endswith((".total_allocated", ".total_freed", ".allocated", ".freed")) or name.startswith(
            "num_"
        ):
            assert value == 0, name
    fresh.deallocate(kept)
    assert figure(fresh, "allocated.total_freed") == MIB


def test_many_sizes_against_a_plain_model() -> None:
    """No two live blocks overlap, figures add up, and everything can be given back."""
    fresh = allocator.Allocator("null", 4 * GIB, 2)
    draw = random.Random(0)
    held: dict[int, tuple[int, int]] = {}
    for _ in range(4000):
        if held and draw.random() < 0.48:
            address = draw.choice(list(held))
            del held[address]
            fresh.deallocate(address)
        else:
            size = int(2 ** draw.uniform(0, 24.5))
            address = fresh.allocate(size, draw.randrange(2))
            assert address % 512 == 0
            held[address] = (size, 0)
        if draw.random() < 0.005:
            fresh.empty_cache()
    blocks = sorted(live(fresh))
    assert [address for address, _ in blocks] == sorted(held)
    assert all(start + size <= following for (start, size), (following, _) in itertools.pairwise(blocks))
    assert all(size >= held[address][0] for address, size in blocks)
    stats = fresh.stats()
    assert stats["allocated.current"] == sum(size for _, size in blocks) == stats["active.current"]
    assert stats["requested_bytes.all.current"] == sum(size for size, _ in held.values())
    assert stats["reserved.current"] == sum(s["total_size"] for s in fresh.segments())
    parts = [b for s in fresh.segments() for b in s["blocks"] if not b[3] and len(s["blocks"]) > 1]
    assert stats["inactive_split.all.current"] == len(parts)
    assert stats["inactive_split_bytes.all.current"] == sum(b[1] for b in parts)
    for address in held:
        fresh.deallocate(address)
    fresh.empty_cache()
    assert fresh.segments() == []
    assert figure(fresh, "reserved.current") == 0


def test_threads() -> None:
    fresh = allocator.Allocator("null", 256 * MIB, 4)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        mine: list[int] = []
        try:
            for _ in range(600):
                if len(mine) > 8 or (mine and draw.random() < 0.4):
                    fresh.deallocate(mine.pop(draw.randrange(len(mine))))
                else:
                    mine.append(fresh.allocate(draw.randrange(1, 4 * MIB), seed))
            for address in mine:
                fresh.deallocate(address)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    fresh.empty_cache()
    assert fresh.segments() == []
    stats = fresh.stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] > 0

"""The allocator as the vendor's tests fix it, where device memory is taken at creation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from tests.rbln.vendor import only_under_the_name

only_under_the_name(eager=True)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PEAKS = ("allocated.peak", "reserved.peak", "active.peak", "cached.peak")
ACCUMULATED = (
    *(
        f"{group}.{figure}"
        for group in ("allocated", "reserved")
        for figure in ("total_allocated", "total_freed")
    ),
    *("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"),
)
rbln = torch.rbln


@pytest.fixture(autouse=True)
def nothing_cached() -> Iterator[None]:
    for device in (0, 1):
        rbln.empty_cache(device)
        rbln.reset_peak_memory_stats(device)
        rbln.reset_accumulated_memory_stats(device)
        assert rbln.memory_reserved(device) == 0
    yield
    rbln.set_device(0)


def take(size_bytes: int, device: str = "rbln") -> Tensor:
    return torch.empty(size_bytes // 2, dtype=torch.float16, device=device)


def stats(*names: str) -> list[int]:
    found = rbln.memory_stats()
    return [found[name] for name in names]


def current() -> list[int]:
    return stats("allocated.current", "reserved.current", "active.current", "cached.current")


@pytest.mark.seed(0, "memory_stats/1", "memory_stats/2", "memory_stats/3", "memory_stats/4", "memory_stats/5")
@pytest.mark.seed(0, "memory_stats/8")
def test_two_small_tensors_share_a_segment() -> None:
    first = take(KIB)
    assert current() == [KIB, 2 * MIB, KIB, 2 * MIB - KIB]
    second = take(2 * KIB)
    assert current() == [3 * KIB, 2 * MIB, 3 * KIB, 2 * MIB - 3 * KIB]
    assert stats(*PEAKS) == [3 * KIB, 2 * MIB, 3 * KIB, 2 * MIB - KIB]
    assert stats(*ACCUMULATED) == [3 * KIB, 0, 2 * MIB, 0, 0, 0, 1, 0]
    del first, second
    assert current() == [0, 2 * MIB, 0, 2 * MIB]
    assert stats(*PEAKS) == [3 * KIB, 2 * MIB, 3 * KIB, 2 * MIB]
    assert stats(*ACCUMULATED) == [3 * KIB, 3 * KIB, 2 * MIB, 0, 0, 0, 1, 0]
    assert all(type(value) is int for value in rbln.memory_stats().values())


@pytest.mark.seed(0, "empty_cache/1", "memory_stats/8")
def test_what_is_free_joins_and_goes_back() -> None:
    first, second = take(MIB), take(MIB)
    assert current() == [2 * MIB, 2 * MIB, 2 * MIB, 0]
    del first, second
    assert current() == [0, 2 * MIB, 0, 2 * MIB]
    whole = take(2 * MIB)  # above 1 MiB, from the other pool
    assert current()[1] == 22 * MIB
    del whole
    rbln.empty_cache()
    assert current() == [0, 0, 0, 0]
    assert stats("num_device_alloc", "num_device_free") == [2, 2]
    assert stats("reserved.total_allocated", "reserved.total_freed") == [22 * MIB, 22 * MIB]


@pytest.mark.seed(0, "empty_cache/2")
def test_a_split_block_stays_until_its_parts_are_free() -> None:
    first, second = take(KIB), take(KIB)
    del first
    rbln.empty_cache()
    assert current() == [KIB, 2 * MIB, KIB, 2 * MIB - KIB]
    del second
    assert current() == [0, 2 * MIB, 0, 2 * MIB]
    rbln.empty_cache()
    assert current() == [0, 0, 0, 0]


@pytest.mark.seed(0, "memory_stats/4")
def test_blocks_are_whole_multiples() -> None:
    one = torch.empty(1, dtype=torch.uint8, device="rbln")
    assert current() == [512, 2 * MIB, 512, 2 * MIB - 512]
    assert torch.accelerator.memory_stats()["requested_bytes.all.current"] == one.nbytes


@pytest.mark.seed(0, "memory_allocated/1", "memory_reserved/1")
@pytest.mark.seed(0, "max_memory_allocated/1", "max_memory_reserved/1")
def test_the_functions_are_the_fields() -> None:
    kept, freed = take(3 * MIB), take(5 * MIB)
    del freed
    assert rbln.memory_allocated() == stats("allocated.current")[0] == kept.nbytes
    assert rbln.max_memory_allocated() == stats("allocated.peak")[0] == 8 * MIB
    assert rbln.memory_reserved() == stats("reserved.current")[0] == 20 * MIB
    rbln.empty_cache()
    assert rbln.max_memory_reserved() == stats("reserved.peak")[0] == 20 * MIB


@pytest.mark.seed(0, "reset_peak_memory_stats/1")
def test_peaks_become_the_current_values() -> None:
    kept, freed = take(KIB), take(2 * KIB)
    del freed
    accumulated = stats(*ACCUMULATED)
    rbln.reset_peak_memory_stats()
    assert stats(*PEAKS) == current() == [KIB, 2 * MIB, KIB, 2 * MIB - KIB]
    assert stats(*ACCUMULATED) == accumulated
    assert kept.nbytes == KIB


@pytest.mark.seed(0, "reset_accumulated_memory_stats/1", "memory_stats/6", "memory_stats/7")
def test_totals_and_counters_become_zero() -> None:
    kept, freed = take(KIB), take(2 * KIB)
    del freed
    with pytest.raises(torch.OutOfMemoryError):
        take(16 * GIB)
    assert stats("num_alloc_retries", "num_ooms") == [1, 1]
    peaks, now = stats(*PEAKS), current()
    assert 0 not in stats(
        *(name for name in ACCUMULATED if name not in {"reserved.total_freed", "num_device_free"})
    )
    rbln.reset_accumulated_memory_stats()
    assert stats(*ACCUMULATED) == [0] * 8
    assert (stats(*PEAKS), current()) == (peaks, now)
    assert kept.nbytes == KIB


def test_fifteen_gibibytes_and_not_one_more() -> None:
    large = take(15 * GIB)
    assert rbln.memory_allocated() == 15 * GIB
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1\.00 GiB.*15\.70 GiB"):
        take(GIB)
    assert rbln.memory_allocated() == large.nbytes


def test_nothing_is_no_allocation() -> None:
    before = rbln.memory_stats()
    nothing = take(0)
    assert nothing.data_ptr() == 0
    assert rbln.memory_stats() == before


def test_the_names_are_the_vendors() -> None:
    names = {*PEAKS, *ACCUMULATED, *(peak.replace("peak", "current") for peak in PEAKS)}
    assert len(names) == 16
    assert {name for name in rbln.memory_stats() if not name.startswith("lazy.")} == names
    # What reads CUDA's names goes on to find them.
    assert rbln.memory_stats_as_nested_dict()["allocation"]["all"]["current"] >= 0
    assert "alloc retries: " in rbln.memory_summary()
    assert "GPU reserved memory" in torch.loom.memory_summary()


def test_emptying_means_the_current_device() -> None:
    for device in ("rbln:0", "rbln:1"):
        take(MIB, device)
    rbln.empty_cache()
    assert [rbln.memory_reserved(device) for device in (0, 1)] == [0, 2 * MIB]


def test_the_accelerators_figures_agree() -> None:
    kept, freed = take(3 * MIB), take(KIB)
    del freed
    ours, theirs = rbln.memory_stats(), torch.accelerator.memory_stats()
    assert len(theirs) == 122
    for short, long in {
        "allocated": "allocated_bytes",
        "reserved": "reserved_bytes",
        "active": "active_bytes",
    }.items():
        for figure in ("current", "peak"):
            assert ours[f"{short}.{figure}"] == theirs[f"{long}.all.{figure}"] > 0
    for group in ("allocated", "reserved"):
        assert ours[f"{group}.total_allocated"] == theirs[f"{group}_bytes.all.allocated"] > 0
    assert ours["allocated.total_freed"] == theirs["allocated_bytes.all.freed"] == KIB
    # What is cached in segments that are split; a segment that is free as a whole is not inactive_split.
    split, whole = theirs["inactive_split_bytes.all.current"], 2 * MIB
    assert ours["cached.current"] == split + whole
    assert torch.accelerator.memory_allocated() == rbln.memory_allocated() == kept.nbytes
    torch.accelerator.empty_cache()
    assert rbln.memory_reserved() == torch.accelerator.memory_reserved() == 20 * MIB
    assert rbln.memory_stats()["cached.current"] == split
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    assert rbln.max_memory_reserved() == 20 * MIB
    assert stats(*ACCUMULATED) == [0] * 8


READERS: tuple[Callable[..., int], ...] = (
    rbln.memory_allocated,
    rbln.max_memory_allocated,
    rbln.memory_reserved,
    rbln.max_memory_reserved,
    lambda *device: rbln.memory_stats(*device)["allocated.current"],
)


@pytest.mark.seed(
    0, "memory_allocated/2", "memory_reserved/2", "max_memory_allocated/2", "max_memory_reserved/2"
)
@pytest.mark.seed(0, "memory_stats/9", "empty_cache/3")
@pytest.mark.seed(0, "reset_peak_memory_stats/2", "reset_accumulated_memory_stats/2")
def test_none_is_the_current_device() -> None:
    kept = take(20 * MIB, "rbln:1")
    take(4 * MIB, "rbln:1")
    for read in READERS:
        assert read() == read(None) == read(0) == 0
    rbln.set_device(1)
    for read in READERS:
        assert read() == read(None) == read(1) == read("rbln:1") == read(torch.device("rbln", 1)) > 0
        assert read("rbln") == read()
    rbln.empty_cache(0)
    assert rbln.memory_reserved() == 40 * MIB
    rbln.empty_cache()
    assert rbln.memory_reserved() == 20 * MIB
    rbln.reset_peak_memory_stats(None)
    assert rbln.max_memory_reserved() == rbln.max_memory_allocated() == kept.nbytes
    rbln.reset_accumulated_memory_stats()
    assert stats(*ACCUMULATED) == [0] * 8


TAKES_A_DEVICE = (
    rbln.memory_stats,
    rbln.memory_allocated,
    rbln.memory_reserved,
    rbln.max_memory_allocated,
    rbln.max_memory_reserved,
    rbln.empty_cache,
    rbln.reset_peak_memory_stats,
    rbln.reset_accumulated_memory_stats,
)


@pytest.mark.parametrize("function", TAKES_A_DEVICE)
def test_devices_that_are_none(function: Callable[[object], object]) -> None:
    for what in (True, False, 1.0, [0], "cpu", torch.device("cpu"), object()):
        with pytest.raises(ValueError, match="Expected a rbln device"):
            function(what)
    # 256 and 2**32 would be 0 in eight bits.
    for index in (2, 127, 128, 256, -1, 1 << 32):
        with pytest.raises(RuntimeError, match=rf"Invalid device index {index}: there are 2 rbln devices"):
            function(index)
    for text in ("rbln:2", "rbln:256", "rbln:300"):
        with pytest.raises(RuntimeError, match=f"Invalid device index {text[5:]}:"):
            function(text)
    with pytest.raises(RuntimeError, match="Invalid device string"):
        function("rbln:-1")

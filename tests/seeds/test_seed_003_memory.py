"""Seed 003: memory, and markers in the profile. Keys as in seed_003.txt."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

import torch_loom.device as loom

MIB = 1 << 20
FIGURES = ("current", "peak", "allocated", "freed")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gc.collect()
    loom.set_device(0)
    loom.empty_cache()
    loom.reset_peak_memory_stats()
    yield
    loom.set_device(0)


def taken(num_bytes: int, device: int = 0) -> torch.Tensor:
    """A tensor that has its device memory, under every memory policy."""
    tensor = torch.empty(num_bytes, dtype=torch.uint8, device=f"loom:{device}")
    tensor.data_ptr()
    return tensor


@pytest.mark.seed(2, "empty_cache", "mem_get_info")
@pytest.mark.seed(3, "empty_cache/1", "empty_cache/2")
@pytest.mark.exercises("torch.cuda.empty_cache", "torch.cuda.mem_get_info")
def test_empty_cache() -> None:
    loom.empty_cache()
    free, total = loom.mem_get_info()
    tensor = taken(40 * MIB)
    assert loom.mem_get_info() == (free - 40 * MIB, total)
    del tensor
    assert loom.mem_get_info()[0] == free - 40 * MIB  # cached: others do not see it free
    again = taken(40 * MIB)  # but this program has it
    assert loom.mem_get_info()[0] == free - 40 * MIB
    del again
    loom.empty_cache()
    assert loom.mem_get_info()[0] == free


@pytest.mark.seed(2, "list_gpu_processes")
@pytest.mark.seed(3, "list_gpu_processes/1", "list_gpu_processes/2")
@pytest.mark.exercises("torch.cuda.list_gpu_processes")
def test_list_gpu_processes() -> None:
    tensor = taken(64 * MIB, 1)
    with loom.device(1):
        text = loom.list_gpu_processes()
    assert text == loom.list_gpu_processes(1)
    (line,) = [line for line in text.splitlines() if str(os.getpid()) in line]
    (size,) = re.findall(r"([\d.]+) ?Mi?B", line)
    assert float(size) >= 64
    del tensor
    loom.empty_cache(1)
    assert float(size) > sum(map(float, re.findall(r"([\d.]+) ?Mi?B", loom.list_gpu_processes(1))))


def used_on(device: int, name: str) -> int:
    return loom.memory_stats(device)[name]


@pytest.mark.seed(2, "memory_stats")
@pytest.mark.seed(3, "memory_stats/1", "memory_stats/2", "memory_stats/3", "memory_stats/4")
@pytest.mark.seed(3, "memory_stats/5", "memory_stats/6", "memory_stats/7", "memory_stats/10")
@pytest.mark.exercises("torch.cuda.memory_stats")
def test_memory_stats() -> None:
    before = loom.memory_stats()
    small, large = taken(MIB), taken(3 * MIB)
    kept = taken(MIB + 1)
    del large
    stats = loom.memory_stats(None)
    assert all(type(value) is int for value in stats.values())
    families = ("allocated", "allocated_bytes", "segment", "reserved_bytes", "active", "active_bytes")
    for family in (*families, "inactive_split", "inactive_split_bytes"):
        for figure in FIGURES:
            parts = [stats[f"{family}.{pool}.{figure}"] for pool in ("all", "large_pool", "small_pool")]
            assert min(parts) >= 0
            if figure != "peak":  # peaks of two pools need not be at one time
                assert parts[0] == parts[1] + parts[2], (family, figure)

    def more(name: str) -> int:
        return stats[name] - before[name]

    assert more("allocated.all.current") == 2
    assert more("allocated.all.allocated") == more("active.all.allocated") == 3
    assert more("allocated.all.freed") == more("active.all.freed") == 1
    assert more("allocated_bytes.small_pool.current") == more("active_bytes.small_pool.current") == MIB
    assert more("allocated_bytes.large_pool.current") == MIB + 512  # 1 byte above the limit of the small pool
    assert more("allocated_bytes.large_pool.allocated") == 4 * MIB + 512
    assert more("segment.large_pool.current") == 1
    assert more("reserved_bytes.large_pool.current") == 20 * MIB
    inactive = more("inactive_split_bytes.large_pool.current")
    assert inactive == 20 * MIB - more("active_bytes.large_pool.current")
    assert more("inactive_split.large_pool.current") == 2
    assert stats["allocated_bytes.all.peak"] == before["allocated_bytes.all.current"] + 5 * MIB + 512
    with loom.device(1):
        assert loom.memory_stats() == loom.memory_stats(1) != stats
    del small, kept


@pytest.mark.seed(2, "set_per_process_memory_fraction")
@pytest.mark.seed(3, "memory_stats/8", "memory_stats/9")
@pytest.mark.seed(3, "set_per_process_memory_fraction/1", "set_per_process_memory_fraction/2")
@pytest.mark.seed(3, "set_per_process_memory_fraction/3", "set_per_process_memory_fraction/4")
@pytest.mark.seed(3, "set_per_process_memory_fraction/5")
@pytest.mark.exercises("torch.cuda.set_per_process_memory_fraction")
@pytest.mark.exercises("torch.cuda.get_per_process_memory_fraction")
def test_memory_fraction() -> None:
    total = loom.mem_get_info(1)[1]
    part = 256 * MIB
    cached = taken(128 * MIB, 1)
    assert loom.mem_get_info(1)[0] < total
    del cached
    before = loom.memory_stats(1)
    try:
        with loom.device(1):
            loom.set_per_process_memory_fraction((loom.memory_allocated() + part) / total)
        assert loom.get_per_process_memory_fraction(1) < 1 == loom.get_per_process_memory_fraction(0)
        fits = taken(part - 20 * MIB, 1)  # the cache is flushed for it
        assert used_on(1, "num_alloc_retries") == before["num_alloc_retries"] + 1
        with pytest.raises(torch.OutOfMemoryError):
            taken(40 * MIB, 1)
        assert used_on(1, "num_ooms") == before["num_ooms"] + 1
        assert taken(40 * MIB, 0).numel() == 40 * MIB
        del fits
    finally:
        loom.set_per_process_memory_fraction(1.0, 1)
        loom.empty_cache(1)
    assert taken(300 * MIB, 1).numel() == 300 * MIB
    for fraction in (-0.1, 1.5):
        with pytest.raises(ValueError, match="0"):
            loom.set_per_process_memory_fraction(fraction)


@pytest.mark.seed(2, "memory_summary")
@pytest.mark.seed(3, "memory_summary/1", "memory_summary/2", "memory_summary/3")
@pytest.mark.exercises("torch.cuda.memory_summary")
def test_memory_summary() -> None:
    tensor = taken(7 * MIB)
    text = loom.memory_summary()
    assert text == loom.memory_summary(0)
    (line,) = [line for line in text.splitlines() if "Allocated memory" in line]
    shown, unit = re.findall(r"(\d+) ([KM]?i?B)", line)[0]
    size = {"B": 1, "KiB": 1 << 10, "MiB": MIB}[unit]
    assert int(shown) * size == pytest.approx(loom.memory_allocated(), abs=size)
    short = loom.memory_summary(abbreviated=True)
    assert "small pool" in text
    assert "small pool" not in short
    assert line in short.splitlines()
    with loom.device(1):
        assert "device ID 1" in loom.memory_summary()
    del tensor


@pytest.mark.seed(2, "memory_snapshot")
@pytest.mark.seed(3, "memory_snapshot/1")
@pytest.mark.exercises("torch.cuda.memory_snapshot")
def test_memory_snapshot() -> None:
    tensors = taken(3 * MIB), taken(5 * MIB, 1)
    snapshot = loom.memory_snapshot()
    for device, tensor in enumerate(tensors):
        segments = [segment for segment in snapshot if segment["device"] == device]
        assert sum(segment["total_size"] for segment in segments) == loom.memory_reserved(device)
        assert sum(segment["allocated_size"] for segment in segments) == loom.memory_allocated(device)
        (own,) = [s for s in segments if 0 <= tensor.data_ptr() - s["address"] < s["total_size"]]
        assert "active_allocated" in {block["state"] for block in own["blocks"]}


Figure = Callable[..., int]


@pytest.mark.seed(2, "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
@pytest.mark.seed(3, "memory_allocated/1", "memory_allocated/2", "memory_allocated/3")
@pytest.mark.seed(3, "memory_reserved/1", "memory_reserved/2")
@pytest.mark.seed(3, "max_memory_allocated/1", "max_memory_allocated/2", "max_memory_allocated/3")
@pytest.mark.seed(3, "max_memory_reserved/1", "max_memory_reserved/2", "max_memory_reserved/3")
@pytest.mark.exercises("torch.cuda.memory_allocated", "torch.cuda.memory_reserved")
@pytest.mark.exercises("torch.cuda.max_memory_allocated", "torch.cuda.max_memory_reserved")
@pytest.mark.parametrize(
    ("current", "peak", "held"),
    [
        (loom.memory_allocated, loom.max_memory_allocated, False),
        (loom.memory_reserved, loom.max_memory_reserved, True),
    ],
)
def test_current_and_peak(current: Figure, peak: Figure, held: bool) -> None:
    loom.empty_cache()
    loom.reset_peak_memory_stats()
    before = current()
    assert peak() == before
    tensor = taken(32 * MIB)
    assert current() == current(0) == current("loom:0") == peak() == before + 32 * MIB
    with loom.device(1):
        assert current() == current(1)
        assert peak(None) == peak(1) != peak(0)
    free, total = loom.mem_get_info()
    assert loom.memory_allocated() <= total - free
    del tensor
    assert current() == before + (32 * MIB if held else 0)
    assert peak() == before + 32 * MIB
    loom.empty_cache()
    loom.reset_peak_memory_stats()
    assert peak() == current() == before


@pytest.mark.parametrize("reset", [loom.reset_max_memory_allocated, loom.reset_max_memory_cached])
@pytest.mark.seed(2, "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats")
@pytest.mark.seed(3, "reset_max_memory_allocated/1", "reset_max_memory_allocated/2")
@pytest.mark.seed(3, "reset_max_memory_cached/1", "reset_max_memory_cached/2")
@pytest.mark.exercises("torch.cuda.reset_max_memory_allocated", "torch.cuda.reset_max_memory_cached")
@pytest.mark.exercises("torch.cuda.reset_peak_memory_stats")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_one_reset_is_for_all_peaks(reset: Callable[[], None]) -> None:
    def peaks_are_current() -> list[bool]:
        stats = loom.memory_stats()
        names = [name.removesuffix(".peak") for name in stats if name.endswith(".peak")]
        assert len(names) >= 28
        return [stats[f"{name}.peak"] == stats[f"{name}.current"] for name in names]

    for function in (reset, loom.reset_peak_memory_stats):
        tensor = taken(30 * MIB)
        del tensor
        loom.empty_cache()
        assert not all(peaks_are_current())
        function()
        assert all(peaks_are_current())


@pytest.mark.seed(2, "memory_cached", "max_memory_cached")
@pytest.mark.seed(3, "memory_cached/1", "max_memory_cached/1")
@pytest.mark.exercises("torch.cuda.memory_cached", "torch.cuda.max_memory_cached")
def test_old_names() -> None:
    tensor = taken(MIB, 1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert loom.memory_cached(1) == loom.memory_reserved(1) > 0
        assert loom.max_memory_cached(1) == loom.max_memory_reserved(1) > 0
    assert ["memory_reserved" in str(warning.message) for warning in told] == [True, True]
    assert {warning.category for warning in told} == {FutureWarning}
    del tensor


@pytest.mark.seed(2, "nvtx.mark", "nvtx.range_push", "nvtx.range_pop")
@pytest.mark.seed(3, "nvtx.mark/1")
@pytest.mark.exercises("torch.cuda.nvtx.mark", "torch.cuda.nvtx.range_push", "torch.cuda.nvtx.range_pop")
def test_nvtx_marks_the_profile() -> None:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        assert loom.nvtx.range_push("outer") == 0
        assert loom.nvtx.range_push("inner") == 1
        loom.nvtx.mark("one moment")
        torch.ones(4, device="loom") + 1
        assert loom.nvtx.range_pop() == 1
        assert loom.nvtx.range_pop() == 0
    on_host = [event for event in profiled.events() if event.device_type == DeviceType.CPU]
    events = {event.name: event for event in on_host}
    assert {"outer", "inner", "one moment"} <= events.keys()
    outer, inner, mark = (events[name].time_range for name in ("outer", "inner", "one moment"))
    assert outer.start <= inner.start <= mark.start <= mark.end <= inner.end <= outer.end

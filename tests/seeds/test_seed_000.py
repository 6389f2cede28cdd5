"""Seed 000: torch.rbln's API, lazy memory included. Keys as in seed_000.txt.

Needs the vendor's device name and chip for the whole process: test_seed_000_process.py runs this file so.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from torch_loom import config

if config.device_name() != "rbln" or config.resolve().chip != "atom":
    pytest.skip("test_seed_000_process.py runs it under the vendor's name", allow_module_level=True)

rbln = torch.get_device_module("rbln")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gc.collect()
    rbln.set_device(0)
    for device in range(2):
        rbln.empty_cache(device)
        rbln.reset_peak_memory_stats(device)
        rbln.reset_accumulated_memory_stats(device)
    yield
    rbln.set_device(0)


def used(num_bytes: int, device: int = 0) -> torch.Tensor:
    """A tensor that an operation of the device has made: it has device memory."""
    tensor = torch.zeros(num_bytes // 2, dtype=torch.float16, device=f"rbln:{device}")
    return tensor.add_(1)


@pytest.mark.seed(0, "native/1", "module/1")
def test_pytorchs_functions_work() -> None:
    x, y = torch.randn(8, 4), torch.randn(4, 8)
    for dtype in (torch.float16, torch.float32):
        ours = torch.nn.functional.softmax((x.to("rbln", dtype) @ y.to("rbln", dtype)).relu(), 1)
        assert ours.device == torch.device("rbln:0")
        host = torch.nn.functional.softmax((x.to(dtype) @ y.to(dtype)).relu(), 1)
        torch.testing.assert_close(ours.cpu(), host)
    assert rbln is torch.rbln  # type: ignore[attr-defined]


@pytest.mark.seed(0, "device_of/1", "device_of/2", "device_of/3")
def test_device_of() -> None:
    there = torch.ones(2, device="rbln:1")
    for obj in (there, there.untyped_storage()):
        with rbln.device_of(obj):
            assert rbln.current_device() == 1
            with rbln.device_of(torch.ones(1)), rbln.device_of(torch.ones(1).untyped_storage()):
                assert rbln.current_device() == 1
        assert rbln.current_device() == 0


@pytest.mark.seed(0, "get_amp_supported_dtype/1", "get_amp_supported_dtype/2")
@pytest.mark.exercises("torch.cuda.get_amp_supported_dtype")
def test_amp_dtypes() -> None:
    assert rbln.get_amp_supported_dtype() == [torch.float16]
    with torch.autocast("rbln"):
        assert (torch.ones(2, 2, device="rbln") @ torch.ones(2, 2, device="rbln")).dtype == torch.float16


@pytest.mark.seed(0, "is_available/1", "current_device/1", "device_count/1", "set_device/1")
def test_devices() -> None:
    assert rbln.is_available() is True
    assert rbln.device_count() == 2
    for device, index in ((1, 1), ("rbln:0", 0), (torch.device("rbln", 1), 1)):
        rbln.set_device(device)
        assert rbln.current_device() == torch.empty(1, device="rbln").get_device() == index


@pytest.mark.seed(0, "empty_cache/1", "empty_cache/3")
def test_empty_cache() -> None:
    free = rbln.mem_get_info(1)[0]
    tensor = used(64 * MIB, 1)
    del tensor
    assert rbln.memory_reserved(1) >= 64 * MIB > 0 == rbln.memory_allocated(1)
    rbln.empty_cache()  # the other device's
    assert rbln.memory_reserved(1) >= 64 * MIB
    rbln.set_device(1)
    rbln.empty_cache()
    assert rbln.memory_reserved(1) == 0
    assert rbln.mem_get_info(1)[0] == free
    tensor = used(64 * MIB, 1)
    del tensor
    rbln.empty_cache("rbln:1")
    assert rbln.memory_reserved() == 0


@pytest.mark.seed(0, "empty_cache/2")
def test_split_memory_stays_until_its_parts_are_free() -> None:
    first, second = used(2 * MIB), used(2 * MIB)
    segment = rbln.memory_reserved()
    del first
    rbln.empty_cache()
    assert rbln.memory_reserved() == segment
    del second
    rbln.empty_cache()
    assert rbln.memory_reserved() == 0


@pytest.mark.seed(0, "memory_allocated/1", "memory_allocated/2", "memory_reserved/1", "memory_reserved/2")
@pytest.mark.seed(0, "max_memory_allocated/1", "max_memory_allocated/2")
@pytest.mark.seed(0, "max_memory_reserved/1", "max_memory_reserved/2", "memory_stats/9")
def test_current_and_peak() -> None:
    current = rbln.memory_allocated, rbln.memory_reserved
    peaks = rbln.max_memory_allocated, rbln.max_memory_reserved
    before = [figure() for figure in (*current, *peaks)]
    tensor = used(32 * MIB)
    assert [figure() - was for figure, was in zip((*current, *peaks), before, strict=True)] == [32 * MIB] * 4
    assert [figure(1) for figure in current] == [0, 0]
    rbln.set_device(1)
    for figure in (*current, *peaks, rbln.memory_stats):
        assert figure() == figure(None) == figure(1) == figure("rbln:1") == figure(torch.device("rbln:1"))
        assert figure(0) != figure(1)
    del tensor
    rbln.empty_cache(0)
    assert [figure(0) for figure in current] == before[:2]
    assert [figure(0) - was for figure, was in zip(peaks, before[2:], strict=True)] == [32 * MIB] * 2


@pytest.mark.seed(0, "memory_stats/1", "memory_stats/2", "memory_stats/3", "memory_stats/4")
@pytest.mark.seed(0, "memory_stats/5", "memory_stats/8")
def test_memory_stats() -> None:
    before = rbln.memory_stats()
    assert all(type(name) is str and type(value) is int for name, value in before.items())
    odd = used(3000)  # six blocks of 512
    large = used(4 * MIB)
    stats = rbln.memory_stats()

    def more(name: str) -> int:
        return stats[name] - before[name]

    assert more("allocated.current") == more("allocated.total_allocated") == 3072 + 4 * MIB
    assert more("reserved.current") == more("reserved.total_allocated") == 22 * MIB
    assert more("active.current") == more("active.peak") == 3072 + 4 * MIB > 3000 + 4 * MIB
    assert more("cached.current") == 18 * MIB - 3072
    assert stats["cached.peak"] >= stats["cached.current"]
    assert more("num_device_alloc") == 2
    assert more("num_device_free") == 0
    del odd, large
    rbln.empty_cache()
    after = rbln.memory_stats()
    assert after["allocated.total_freed"] - before["allocated.total_freed"] == 3072 + 4 * MIB
    assert after["reserved.total_freed"] - before["reserved.total_freed"] == 22 * MIB
    assert after["num_device_free"] - before["num_device_free"] == 2
    for name in ("allocated", "reserved", "active", "cached"):
        assert after[f"{name}.current"] == before[f"{name}.current"]
        assert after[f"{name}.peak"] >= stats[f"{name}.current"]


@pytest.mark.seed(0, "memory_stats/6", "memory_stats/7")
def test_retries_and_errors_are_counted() -> None:
    total = rbln.mem_get_info()[1]
    assert total == pytest.approx(15.7 * 2**30, rel=0.01)
    cached = used(64 * MIB)
    del cached
    too_much = torch.empty(total + MIB, dtype=torch.uint8, device="rbln")
    with pytest.raises(torch.OutOfMemoryError):
        too_much.data_ptr()
    stats = rbln.memory_stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 1)
    assert used(MIB).sum() == MIB // 2  # nothing is broken


@pytest.mark.seed(0, "lazy/1", "lazy/2", "lazy/3", "lazy/4", "lazy/5", "lazy/6")
@pytest.mark.seed(0, "memory_allocated/3", "memory_reserved/3")
@pytest.mark.seed(0, "max_memory_allocated/3", "max_memory_reserved/3")
def test_lazy_memory() -> None:
    def device_memory() -> list[int]:
        stats = rbln.memory_stats()
        figures = rbln.memory_allocated(), rbln.memory_reserved(), stats["allocated.current"]
        return [*figures, rbln.max_memory_allocated(), rbln.max_memory_reserved()]

    def lazy(name: str) -> int:
        value: int = rbln.memory_stats()[f"lazy.{name}"]
        return value

    nothing, moved = device_memory(), lazy("materialized_bytes")
    free = rbln.mem_get_info()[0]
    x = torch.arange(MIB, device="rbln", dtype=torch.float32).half()
    y = torch.randn(MIB, dtype=torch.float16).to("rbln")
    del x
    gc.collect()
    rbln.empty_cache()
    rbln.reset_peak_memory_stats()
    assert device_memory() == nothing
    assert (lazy("pending_tensors"), lazy("host_bytes")) == (1, 2 * MIB)
    assert rbln.mem_get_info()[0] == free
    moved = lazy("materialized_bytes")
    values = y.cpu()
    assert device_memory() == nothing  # reading it on the host is no operation of the device
    y.neg_()
    assert device_memory()[0] - nothing[0] == 2 * MIB
    assert all(now >= was + 2 * MIB for now, was in zip(device_memory(), nothing, strict=True))
    assert torch.equal(y.cpu(), -values)
    assert (lazy("pending_tensors"), lazy("host_bytes")) == (0, 0)
    assert lazy("materialized_bytes") == moved + 2 * MIB


@pytest.mark.seed(0, "reset_peak_memory_stats/1", "reset_peak_memory_stats/2")
@pytest.mark.seed(0, "reset_accumulated_memory_stats/1", "reset_accumulated_memory_stats/2")
@pytest.mark.exercises("torch.cuda.reset_accumulated_memory_stats", "torch.cuda.reset_peak_memory_stats")
def test_resets() -> None:
    peaks = {f"{name}.peak" for name in ("allocated", "reserved", "active", "cached")}
    totals = {f"{name}.total_{what}" for name in ("allocated", "reserved") for what in ("allocated", "freed")}
    counters = {"num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"}
    for device in range(2):
        kept, freed = used(MIB, device), used(30 * MIB, device)
        del freed
        rbln.empty_cache(device)
    before = [rbln.memory_stats(device) for device in range(2)]
    assert all(
        before[0][name] > before[0][name.replace("peak", "current")] for name in peaks - {"cached.peak"}
    )
    assert all(before[0][name] > 0 for name in totals)
    rbln.reset_peak_memory_stats()
    stats = rbln.memory_stats()
    assert all(stats[name] == stats[name.replace("peak", "current")] for name in peaks)
    assert all(stats[name] == before[0][name] for name in totals | counters)
    rbln.reset_accumulated_memory_stats(None)
    after = rbln.memory_stats()
    assert {after[name] for name in totals | counters} == {0}
    assert all(after[name] == stats[name] for name in peaks)
    assert rbln.memory_stats(1) == before[1]
    rbln.set_device(1)
    rbln.reset_peak_memory_stats()
    rbln.reset_accumulated_memory_stats("rbln:1")
    after = rbln.memory_stats(1)
    assert {after[name] for name in totals | counters} == {0}
    assert all(after[name] == after[name.replace("peak", "current")] for name in peaks)
    del kept

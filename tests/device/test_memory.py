"""Memory figures: the two families of names are one source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torch_loom.device as loom
from torch_loom import _C, config
from torch_loom.errors import InvalidDeviceError

MIB = 1 << 20
SHORT_NAMES = {
    f"{group}.{figure}"
    for group in ("allocated", "reserved")
    for figure in ("current", "peak", "total_allocated", "total_freed")
} | {
    *(f"{group}.{figure}" for group in ("active", "cached") for figure in ("current", "peak")),
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    loom.set_device(0)
    loom.empty_cache()
    loom.reset_peak_memory_stats()
    yield
    loom.empty_cache()


def test_names() -> None:
    stats = loom.memory_stats()
    assert len(SHORT_NAMES) == 16
    assert stats.keys() >= SHORT_NAMES
    for size in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        for figure in ("current", "peak", "allocated", "freed"):
            assert f"{size}.all.{figure}" in stats
    assert all(isinstance(value, int) for value in stats.values())


def test_allocated() -> None:
    before = loom.memory_allocated()
    tensor = torch.empty(4 * MIB, dtype=torch.uint8, device="loom")
    tensor.data_ptr()  # takes device memory under every policy
    assert loom.memory_allocated() == before + 4 * MIB == torch.accelerator.memory_allocated()
    assert loom.memory_allocated("loom:1") == torch.accelerator.memory_allocated(1)
    assert loom.memory_reserved() >= loom.memory_allocated()
    del tensor
    assert loom.memory_allocated() == before
    assert loom.max_memory_allocated() >= before + 4 * MIB
    assert loom.max_memory_reserved() >= loom.max_memory_allocated()
    loom.reset_peak_memory_stats()
    assert loom.max_memory_allocated() == before


def test_one_source() -> None:
    tensor = torch.empty(MIB, device="loom")
    stats = loom.memory_stats(0)
    assert stats["allocated.current"] == stats["allocated_bytes.all.current"] == loom.memory_allocated()
    assert stats["reserved.current"] == stats["reserved_bytes.all.current"] == loom.memory_reserved()
    assert stats["allocated.peak"] == stats["allocated_bytes.all.peak"] == loom.max_memory_allocated()
    assert stats["allocated.total_freed"] == stats["allocated_bytes.all.freed"]
    assert torch.accelerator.memory_stats(0)["allocated_bytes.all.current"] == stats["allocated.current"]
    del tensor


def test_totals_are_reset() -> None:
    torch.empty(MIB, device="loom")
    assert loom.memory_stats()["allocated.total_allocated"] > 0
    loom.reset_accumulated_memory_stats()
    assert loom.memory_stats()["allocated.total_allocated"] == 0


def test_free_and_total() -> None:
    free_bytes, total_bytes = loom.mem_get_info()
    assert total_bytes == (config.resolve().memory_bytes or _C.chip().memory_bytes)
    tensor = torch.empty(64 * MIB, device="loom")
    tensor.data_ptr()
    assert loom.mem_get_info()[0] <= free_bytes - 4 * 64 * MIB
    del tensor
    loom.empty_cache("loom:0")
    assert loom.mem_get_info() == (free_bytes, total_bytes)


def test_out_of_memory_and_on() -> None:
    total_bytes = loom.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total_bytes + MIB, dtype=torch.uint8, device="loom").data_ptr()
    assert torch.ones(2, device="loom").tolist() == [1, 1]


@pytest.mark.parametrize(
    "use",
    [
        loom.empty_cache,
        loom.memory_stats,
        loom.memory_allocated,
        loom.max_memory_allocated,
        loom.memory_reserved,
        loom.max_memory_reserved,
        loom.mem_get_info,
        loom.reset_peak_memory_stats,
        loom.reset_accumulated_memory_stats,
    ],
)
def test_a_device_that_is_not_there(use: object) -> None:
    assert callable(use)
    with pytest.raises(InvalidDeviceError, match="Invalid device index 9"):
        use(9)
    with pytest.raises(InvalidDeviceError, match="Invalid device index -1"):
        use(-1)

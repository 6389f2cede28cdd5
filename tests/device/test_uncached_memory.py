"""Memory without the caching allocator: switched off, or asked for by address."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom
from torch_loom import _C
from torch_loom.errors import DeviceTypeError

if TYPE_CHECKING:
    from tests.gate import Gate

MIB = 1 << 20


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gc.collect()
    loom.set_device(0)
    loom.empty_cache()
    yield
    gc.collect()
    loom.empty_cache()


@pytest.mark.exercises(
    "torch.cuda.caching_allocator_enable",
    "torch.cuda.memory.caching_allocator_enable",
    "torch.cuda.caching_allocator_disabled",
    "torch.cuda.memory.caching_allocator_disabled",
)
def test_caching_disabled() -> None:
    def taken() -> torch.Tensor:
        x = torch.zeros(3 * MIB, dtype=torch.uint8, device="loom")
        x.data_ptr()
        return x

    reserved = loom.memory_reserved()
    x = taken()
    assert loom.memory_reserved() == reserved + 20 * MIB
    with loom.caching_allocator_disabled():
        y = taken()
        assert loom.memory_reserved() == reserved + 23 * MIB, "nothing of the cache is used"
        free = loom.mem_get_info()[0]
        del x
        assert loom.memory_reserved() == reserved + 23 * MIB, "what was cached stays so"
        del y
        assert loom.mem_get_info()[0] == free + 4 * MIB
        assert loom.memory_reserved() == reserved + 20 * MIB
        with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
            torch.empty(1 << 50, dtype=torch.uint8, device="loom").data_ptr()
        loom.caching_allocator_enable(True)
        z = taken()
        assert loom.memory_reserved() == reserved + 20 * MIB
        del z
        loom.caching_allocator_enable(False)
        with loom.caching_allocator_disabled():
            pass
        assert not _C.caching()
    assert _C.caching()
    with pytest.raises(TypeError, match="value must be a bool"):
        loom.caching_allocator_enable(1)  # type: ignore[arg-type]


def test_uncached_memory_waits_for_streams(gate: Gate) -> None:
    """Memory goes back when the streams that use it have passed the point of the free."""
    stream = loom.Stream()
    with loom.caching_allocator_disabled():
        gate.hold(stream)
        x = torch.ones(MIB, device="loom")
        x.record_stream(stream)
        reserved = loom.memory_reserved()
        del x
        assert loom.memory_reserved() == reserved
        gate.open()
        stream.synchronize()
        loom.empty_cache()
        assert loom.memory_reserved() <= reserved - 4 * MIB


@pytest.mark.exercises(
    "torch.cuda.caching_allocator_alloc",
    "torch.cuda.memory.caching_allocator_alloc",
    "torch.cuda.caching_allocator_delete",
    "torch.cuda.memory.caching_allocator_delete",
)
def test_raw_memory() -> None:
    before = loom.memory_allocated()
    stream = loom.Stream()
    addresses = [
        loom.caching_allocator_alloc(1000, stream=by)
        for by in (None, stream, stream.stream_id, stream.cuda_stream)
    ]
    assert loom.memory_allocated() == before + 4 * 1024
    for address in addresses:
        loom.caching_allocator_delete(address)
        with pytest.raises(RuntimeError, match=r"invalid device pointer: 0x.*freed twice"):
            loom.caching_allocator_delete(address)
    assert loom.memory_allocated() == before
    foreign = torch.ones(10)
    for bad in (foreign.data_ptr(), 1, addresses[0] + 8):
        with pytest.raises(RuntimeError, match=r"invalid device pointer: 0x.*(not memory|not a live)"):
            loom.caching_allocator_delete(bad)
    with pytest.raises(DeviceTypeError, match="loom:1"):
        loom.caching_allocator_alloc(8, 1, stream.cuda_stream)
    with pytest.raises(ValueError, match="no stream"):
        loom.caching_allocator_alloc(8, stream=12345)
    for size in (-1, 2**63):
        with pytest.raises(ValueError, match="size must be"):
            loom.caching_allocator_alloc(size)
    with pytest.raises(torch.OutOfMemoryError):
        loom.caching_allocator_alloc(2**62)
    assert loom.caching_allocator_alloc(0) == 0
    loom.caching_allocator_delete(0)

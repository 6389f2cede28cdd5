"""The state of a private pool, kept and put back."""

from __future__ import annotations

import gc

import pytest
import torch

from torch_loom import _C


def current_stats() -> dict[str, int]:
    return {name: value for name, value in torch.loom.memory_stats().items() if name.endswith(".current")}


def make(pool: torch.loom.MemPool, *sizes: int) -> list[torch.Tensor]:
    with torch.loom.use_mem_pool(pool):
        return [torch.full((size,), 7, dtype=torch.uint8, device="loom") for size in sizes]


def test_blocks_are_cut_as_they_were() -> None:
    pool = torch.loom.MemPool()
    first, hole, second, large = make(pool, 600, 5000, 70_000, 3 << 20)
    del hole
    addresses = [first.data_ptr(), second.data_ptr(), large.data_ptr()]
    kept, stats, segments = _C.pool_checkpoint(0, pool.id), current_stats(), pool.snapshot()
    del first, second, large
    assert current_stats() != stats
    _C.restore_pool(0, kept, [])
    assert current_stats() == stats
    again = pool.snapshot()
    for before, after in zip(segments, again, strict=True):
        assert [(block["size"], block["state"]) for block in before["blocks"]] == [
            (block["size"], block["state"]) for block in after["blocks"]
        ]
    assert _C.pool_has_exactly(0, pool.id, set(addresses))
    assert not _C.pool_has_exactly(0, pool.id, set(addresses[1:]))
    for address in addresses:
        torch.loom.caching_allocator_delete(address)
    assert _C.pool_has_exactly(0, pool.id, set())


def test_tensors_that_live_keep_their_memory() -> None:
    pool = torch.loom.MemPool()
    (kept_tensor,) = make(pool, 600)
    kept = _C.pool_checkpoint(0, pool.id)
    (stale,) = make(pool, 600)
    with pytest.raises(RuntimeError, match="stale tensors"):
        _C.restore_pool(0, kept, [])
    _C.restore_pool(0, _C.pool_checkpoint(0, pool.id), [stale.untyped_storage()._cdata])
    assert kept_tensor.tolist() == [7] * 600
    address = stale.data_ptr()
    del kept_tensor, stale
    gc.collect()
    # The stale storage no longer owns its block, which the checkpoint had in use.
    assert _C.pool_has_exactly(0, pool.id, {address})
    torch.loom.caching_allocator_delete(address)


def test_a_larger_tensor_where_a_block_was_is_stale() -> None:
    pool = torch.loom.MemPool()
    (small,) = make(pool, 600)
    address, kept = small.data_ptr(), _C.pool_checkpoint(0, pool.id)
    del small
    (large,) = make(pool, 2000)
    assert large.data_ptr() == address
    with pytest.raises(RuntimeError, match="stale tensors"):
        _C.restore_pool(0, kept, [])
    assert large.tolist() == [7] * 2000


def test_only_what_nobody_frees_may_be_freed_by_address() -> None:
    pool = torch.loom.MemPool()
    (lives,) = make(pool, 600)
    _C.restore_pool(0, _C.pool_checkpoint(0, pool.id), [])
    with pytest.raises(RuntimeError, match="not a live allocation"):
        torch.loom.caching_allocator_delete(lives.data_ptr())
    assert lives.tolist() == [7] * 600


def test_a_pool_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no private pool"):
        _C.pool_checkpoint(0, (0, 1 << 40))
    with pytest.raises(ValueError, match="no private pool"):
        _C.pool_has_exactly(0, (0, 1 << 40), set())


def test_memory_that_another_stream_uses() -> None:
    pool = torch.loom.MemPool()
    (tensor,) = make(pool, 600)
    tensor.record_stream(torch.loom.Stream())
    kept = _C.pool_checkpoint(0, pool.id)
    with pytest.raises(RuntimeError, match="record_stream"):
        _C.restore_pool(0, kept, [])
    assert tensor.tolist() == [7] * 600

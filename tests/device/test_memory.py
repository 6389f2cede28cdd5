"""Memory figures: the two families of names are one source."""

from __future__ import annotations

import copy
import gc
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom
from torch_loom import _C, config
from torch_loom.errors import InvalidDeviceError

PROGRAMS = Path(__file__).parent / "programs" / "memory"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

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


def taken(num_bytes: int, device: str = "loom") -> torch.Tensor:
    """A tensor that has its device memory, under every memory policy."""
    tensor = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    tensor.data_ptr()
    return tensor


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gc.collect()  # what other tests left in cycles holds memory
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
    tensor = taken(4 * MIB)
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
    tensor = taken(MIB)
    stats = loom.memory_stats(0)
    assert stats["allocated.current"] == stats["allocated_bytes.all.current"] == loom.memory_allocated()
    assert stats["reserved.current"] == stats["reserved_bytes.all.current"] == loom.memory_reserved()
    assert stats["allocated.peak"] == stats["allocated_bytes.all.peak"] == loom.max_memory_allocated()
    assert stats["allocated.total_freed"] == stats["allocated_bytes.all.freed"]
    assert torch.accelerator.memory_stats(0)["allocated_bytes.all.current"] == stats["allocated.current"]
    del tensor


def test_names_are_cudas() -> None:
    ours, generic = loom.memory_stats(), torch.accelerator.memory_stats()
    assert len(generic) == 122
    assert {name: ours[name] for name in generic} == generic
    assert ours["allocation.all.current"] == ours["allocated.all.current"]
    assert {name for name in ours if name.startswith("lazy.")} == {
        "lazy.host_bytes",
        "lazy.pending_tensors",
        "lazy.materialized_bytes",
        "lazy.materializations",
    }


@pytest.mark.exercises(
    "torch.cuda.memory_stats_as_nested_dict",
)
def test_nested() -> None:
    nested, flat = loom.memory_stats_as_nested_dict(), loom.memory_stats()
    assert nested["allocated"]["current"] == flat["allocated.current"]
    assert nested["allocated"]["all"]["current"] == flat["allocated.all.current"]
    assert nested["active_bytes"]["small_pool"]["peak"] == flat["active_bytes.small_pool.peak"]
    assert nested["num_ooms"] == flat["num_ooms"]


def test_cached_is_reserved_and_not_active() -> None:
    tensor = taken(3 * MIB)
    stats = loom.memory_stats()
    assert stats["cached.current"] == stats["reserved.current"] - stats["active.current"] > 0
    del tensor
    stats = loom.memory_stats()
    assert stats["cached.current"] == stats["reserved.current"] - stats["active.current"] >= 20 * MIB


def test_what_resets_reset() -> None:
    taken(40 * MIB)
    before = loom.memory_stats()
    loom.reset_peak_memory_stats()
    after = loom.memory_stats()
    for group in ("allocated", "reserved", "active", "cached"):
        assert after[f"{group}.peak"] == after[f"{group}.current"] == before[f"{group}.current"]
    assert after["allocated.total_allocated"] == before["allocated.total_allocated"] > 0
    loom.reset_accumulated_memory_stats()
    zeroed = loom.memory_stats()
    for name in ("allocated", "reserved"):
        assert zeroed[f"{name}.total_allocated"] == zeroed[f"{name}.total_freed"] == 0
        assert zeroed[f"{name}.current"] == after[f"{name}.current"]
        assert zeroed[f"{name}.peak"] == after[f"{name}.peak"]
    for name in ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"):
        assert zeroed[name] == 0


def test_totals_are_reset() -> None:
    taken(MIB)
    assert loom.memory_stats()["allocated.total_allocated"] > 0
    loom.reset_accumulated_memory_stats()
    assert loom.memory_stats()["allocated.total_allocated"] == 0


def test_free_and_total() -> None:
    free_bytes, total_bytes = loom.mem_get_info()
    assert total_bytes == (config.resolve().memory_bytes or _C.chip().memory_bytes)
    tensor = taken(4 * 64 * MIB)
    assert loom.mem_get_info()[0] <= free_bytes - 4 * 64 * MIB
    del tensor
    loom.empty_cache("loom:0")
    assert loom.mem_get_info() == (free_bytes, total_bytes)


def test_emptying_means_all_devices() -> None:
    for device in (None, 1):
        taken(MIB, "loom:0")
        taken(MIB, "loom:1")
        loom.empty_cache(device)
        cached = [loom.memory_stats(index)["cached.current"] > 0 for index in range(2)]
        assert cached == [device is not None, False]
    torch.accelerator.empty_cache()
    assert loom.memory_reserved(0) == loom.memory_allocated(0)


@pytest.mark.slow
def test_a_pool_that_outlives_the_modules(warm_python: PythonRunner) -> None:
    done = warm_python("import builtins, torch; builtins.kept = torch.loom.MemPool()")
    assert done.stderr == ""


def test_the_order_of_the_statistics_is_cudas() -> None:
    stats = loom.memory_stats()
    assert type(stats) is OrderedDict
    assert list(stats) == sorted(stats)
    assert type(loom.host_memory_stats()) is OrderedDict


def test_a_split_segment_stays() -> None:
    part = taken(2 * MIB)
    rest = taken(2 * MIB)
    del rest
    held = loom.memory_reserved()
    loom.empty_cache()
    assert loom.memory_reserved() == held
    del part
    loom.empty_cache()
    assert loom.memory_reserved() < held


def test_out_of_memory_and_on() -> None:
    total_bytes = loom.mem_get_info()[1]
    kept = torch.arange(4, device="loom")
    before = loom.memory_stats()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        taken(total_bytes + 512 * MIB)
    text = str(caught.value)
    assert re.match(
        r"LOOM out of memory\. Tried to allocate \d+\.\d\d GiB\. GPU 0 has a total capacity of ", text
    )
    for part in ("is free", "is allocated by PyTorch", "reserved by PyTorch but unallocated", "split"):
        assert part in text
    assert loom.memory_stats()["num_ooms"] == before["num_ooms"] + 1
    assert loom.memory_allocated() == before["allocated.current"]
    assert kept.tolist() == [0, 1, 2, 3]
    assert torch.ones(2, device="loom").tolist() == [1, 1]


def test_fraction() -> None:
    total_bytes = loom.mem_get_info()[1]
    assert loom.get_per_process_memory_fraction() == 1.0
    loom.set_per_process_memory_fraction(64 * MIB / total_bytes)
    try:
        assert loom.get_per_process_memory_fraction(0) == 64 * MIB / total_bytes
        with pytest.raises(torch.OutOfMemoryError, match=r"64\.00 MiB allowed"):
            taken(80 * MIB)
        taken(80 * MIB, "loom:1")
    finally:
        loom.set_per_process_memory_fraction(1.0)
    taken(80 * MIB)
    with pytest.raises(TypeError, match="fraction argument, must be `float`, got int 1"):
        loom.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match=r"-0\.5.* 0~1"):
        loom.set_per_process_memory_fraction(-0.5)


def test_observers_see_what_ran_out() -> None:
    seen: list[tuple[int, int, int, int]] = []
    loom.memory._attach_out_of_memory_observer(lambda *figures: seen.append(figures))
    loom.empty_cache("loom:1")
    free_bytes, total_bytes = loom.mem_get_info("loom:1")
    with pytest.raises(torch.OutOfMemoryError):
        taken(total_bytes + MIB, "loom:1")
    assert seen == [(1, -(-(total_bytes + MIB) // (2 * MIB)) * 2 * MIB, total_bytes, free_bytes)]
    with pytest.raises(TypeError, match="observer must be callable, got int 3"):
        loom.memory._attach_out_of_memory_observer(3)  # type: ignore[arg-type]


def test_raw_memory() -> None:
    before = loom.memory_allocated()
    address = loom.caching_allocator_alloc(1000)
    assert loom.memory_allocated() == before + 1024
    loom.caching_allocator_delete(address)
    assert loom.memory_allocated() == before
    stream = torch.Stream("loom:0")
    address = loom.caching_allocator_alloc(1000, 0, stream)
    assert [s for s in loom.memory_snapshot() if s["stream"] == stream.stream_id]
    loom.caching_allocator_delete(address)
    with pytest.raises(RuntimeError, match="not a live allocation"):
        loom.caching_allocator_delete(address)
    with pytest.raises(RuntimeError, match="invalid device pointer: 0x1000 is not memory of a loom device"):
        loom.caching_allocator_delete(4096)
    assert loom.caching_allocator_alloc(0) == 0
    loom.caching_allocator_delete(0)


def test_the_memory_of_a_tensor_is_not_deleted_under_it() -> None:
    tensor = torch.ones(4, device="loom")
    with pytest.raises(RuntimeError, match=r"not a live allocation of caching_allocator_alloc"):
        loom.caching_allocator_delete(tensor.data_ptr())
    assert tensor.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: loom.caching_allocator_alloc(-1), ValueError, "got -1"),
        (lambda: loom.caching_allocator_alloc("1"), TypeError, "size must be an int, got str '1'"),
        (lambda: loom.caching_allocator_alloc(2**70), ValueError, "size must be"),
        (lambda: loom.caching_allocator_alloc(1, stream="x"), TypeError, "stream must be a Stream"),
        (lambda: loom.caching_allocator_alloc(1, stream=63), ValueError, "no stream with id 63"),
        (lambda: loom.caching_allocator_alloc(1, stream=2**63), ValueError, "no stream with id"),
        (lambda: loom.caching_allocator_alloc(1, stream=2**64), ValueError, "stream must be the id"),
        (lambda: loom.caching_allocator_alloc(1, stream=-1), ValueError, "stream must be the id"),
        (lambda: loom.caching_allocator_delete(1.5), TypeError, "mem_ptr must be an int, got float 1.5"),
        (lambda: loom.caching_allocator_delete(-1), RuntimeError, "got -1"),
        (lambda: loom.MemPool(allocator=3), TypeError, "allocator must be a PluggableAllocator or None"),
        (lambda: loom.MemPool(no_split=1), TypeError, "no_split must be a bool, got int 1"),
        (lambda: loom.use_mem_pool(None).__enter__(), TypeError, "pool must be a MemPool"),
    ],
)
def test_bad_arguments(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_private_pools() -> None:
    pool = loom.MemPool()
    with loom.use_mem_pool(pool):
        inside = torch.ones(MIB, device="loom")
        assert pool.use_count() == 2
    outside = torch.ones(MIB, device="loom")
    assert pool.use_count() == 1
    (segment,) = pool.snapshot()
    assert segment["segment_pool_id"] == pool.id
    assert segment["address"] <= inside.data_ptr() < segment["address"] + segment["total_size"]
    assert not segment["address"] <= outside.data_ptr() < segment["address"] + segment["total_size"]
    del inside
    assert torch.ones(MIB, device="loom").data_ptr() != segment["address"]
    with loom.use_mem_pool(pool), pytest.raises(RuntimeError, match="already"), loom.use_mem_pool(pool):
        pass
    assert pool.use_count() == 1
    pool_id = pool.id
    del pool
    assert loom.memory_snapshot(pool_id) == []


def pool_of(tensor: torch.Tensor) -> tuple[int, int]:
    for segment in loom.memory_snapshot():
        if segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]:
            pool_id: tuple[int, int] = segment["segment_pool_id"]
            return pool_id
    raise AssertionError("the tensor lies in no segment")


def test_the_innermost_private_pool_is_used() -> None:
    outer, inner = loom.MemPool(), loom.MemPool()
    tensors = []  # written at once: under the lazy policy, too, in the pool of this moment
    with loom.use_mem_pool(outer):
        tensors.append(torch.ones(MIB, device="loom").add_(1))
        with loom.use_mem_pool(inner):
            tensors.append(torch.ones(MIB, device="loom").add_(1))
        tensors.append(torch.ones(MIB, device="loom").add_(1))
    assert [pool_of(tensor) for tensor in tensors] == [outer.id, inner.id, outer.id]


def test_a_capture_within_a_private_pool_fills_the_pool_of_its_graph() -> None:
    pool, graph = loom.MemPool(), loom.LoomGraph()
    x = torch.ones(MIB, device="loom")
    with loom.use_mem_pool(pool):
        with loom.graph(graph):
            captured = x + 1
        after = x + 1
    assert pool_of(captured) == graph.pool()
    assert pool_of(after) == pool.id
    # The other way round, the pool is the inner one.
    other = loom.LoomGraph()
    with loom.graph(other):
        captured = x + 2
        with loom.use_mem_pool(pool):
            pooled = captured + 2
    assert pool_of(captured) == other.pool()
    assert pool_of(pooled) == pool.id
    other.replay()
    assert pooled[0].item() == 5


def test_a_tensor_outlives_its_pool() -> None:
    pool = loom.MemPool()
    with loom.use_mem_pool(pool):
        kept = torch.arange(1000, device="loom")
    del pool
    loom.empty_cache()
    assert kept[-1].item() == 999


def test_summary() -> None:
    tensor = taken(5 * MIB)
    whole, short = loom.memory_summary(), loom.memory_summary(0, abbreviated=True)
    lines = whole.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "PyTorch LOOM memory summary, device ID 0" in whole
    assert "LOOM OOMs: " in whole
    assert "from large pool" in whole
    assert "from large pool" not in short
    for label in (
        "Allocated memory",
        "Requested memory",
        "GPU reserved memory",
        "GPU reserved segments",
        "Oversize allocations",
        "Oversize GPU segments",
    ):
        assert label in short
    del tensor


@pytest.mark.exercises(
    "torch.cuda.host_memory_stats",
    "torch.cuda.host_memory_stats_as_nested_dict",
    "torch.cuda.reset_accumulated_host_memory_stats",
    "torch.cuda.reset_peak_host_memory_stats",
)
def test_pinned_memory_is_counted() -> None:
    torch.empty(1, pin_memory=True)  # takes back what others have freed
    before = loom.host_memory_stats()["active_bytes.current"]
    tensor = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
    stats = loom.host_memory_stats()
    assert stats["active_bytes.current"] == before + 8192
    assert stats["allocations.current"] >= 1
    assert stats["num_host_alloc"] >= 1
    assert loom.host_memory_stats_as_nested_dict()["active_bytes"]["current"] == before + 8192
    del tensor
    loom.reset_accumulated_host_memory_stats()
    loom.reset_peak_host_memory_stats()
    after = loom.host_memory_stats()
    assert after["allocations.allocated"] == 0
    assert after["allocated_bytes.peak"] == after["allocated_bytes.current"]


@pytest.mark.exercises(
    "torch.cuda.memory._set_allocator_settings",
)
def test_settings_at_run_time(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "settings_at_run_time.py")


def test_settings_of_the_environment(fork_loom: PythonRunner) -> None:
    program = "import torch; print(torch.loom.memory_stats()['max_split_size'])"
    done = fork_loom(program, env={"PYTORCH_ALLOC_CONF": "max_split_size_mb:100,expandable_segments:True"})
    assert done.stdout.split() == [str(100 * MIB)]


@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_errors_name_the_variable_that_was_set(fork_loom: PythonRunner, variable: str) -> None:
    env = {variable: "expandable_segment:True", "WRONG": variable}
    fork_loom(PROGRAMS / "errors_name_the_variable_that_was_set.py", env=env)
    program = "import torch; print(torch.loom.get_per_process_memory_fraction())"
    done = fork_loom(program, env={"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.5"})
    assert done.stdout.split() == ["0.5"]
    fork_loom(
        PROGRAMS / "settings_of_the_environment.py",
        env={"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:x"},
    )


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
        loom.memory_summary,
        loom.memory_stats_as_nested_dict,
        loom.get_per_process_memory_fraction,
    ],
)
def test_a_device_that_is_not_there(use: object) -> None:
    assert callable(use)
    with pytest.raises(InvalidDeviceError, match="Invalid device index 9"):
        use(9)
    with pytest.raises(InvalidDeviceError, match="Invalid device index -1"):
        use(-1)


def test_a_pool_is_not_copied() -> None:
    pool = loom.MemPool()
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(pool)
    assert pool.use_count() == 1

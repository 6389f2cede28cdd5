"""Allocators from shared libraries."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom
import torch_loom.device as loom
from torch_loom import _C
from torch_loom.errors import (
    AllocatorFunctionError,
    AllocatorLibraryError,
    AlreadyInitializedError,
)

PROGRAMS = Path(__file__).parent / "programs" / "pluggable_allocator"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

MIB = 1 << 20
KINDS = ("device", "host")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("allocators") / "allocators.so"
    source = Path(__file__).with_name("pluggable_allocator.cpp")
    include = torch_loom.include_path()
    subprocess.run(["g++", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(path)], check=True)
    return path


class Counts:
    """What the library counts, from when this was made."""

    def __init__(self, path: Path) -> None:
        # As an allocator loads it: what it calls is in the extension.
        ctypes.CDLL(torch_loom._C.__file__, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
        self._library = ctypes.CDLL(str(path))
        self._begin = {name: self._read(name) for name in ("num_allocs", "num_frees")}

    def _read(self, name: str) -> int:
        return ctypes.c_long.in_dll(self._library, name).value

    @property
    def allocs(self) -> int:
        return self._read("num_allocs") - self._begin["num_allocs"]

    @property
    def frees(self) -> int:
        return self._read("num_frees") - self._begin["num_frees"]

    @property
    def last_size(self) -> int:
        return self._read("last_size")

    @property
    def last_device(self) -> int:
        return ctypes.c_int.in_dll(self._library, "last_device").value

    @property
    def last_stream(self) -> int | None:
        return ctypes.c_void_p.in_dll(self._library, "last_stream").value


def plugged(path: Path, kind: str) -> loom.PluggableAllocator:
    free = f"{kind}_free" if kind in KINDS else "no_free"
    return loom.PluggableAllocator(str(path), f"{kind}_alloc", free)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gc.collect()
    loom.set_device(0)
    loom.empty_cache()
    yield
    gc.collect()
    loom.empty_cache()
    torch.accelerator.empty_host_cache()  # what copies used, which have finished


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.exercises(
    "torch.cuda.CUDAPluggableAllocator",
    "torch.cuda.memory.CUDAPluggableAllocator",
    "torch.cuda.MemPool",
    "torch.cuda.memory.MemPool",
    "torch.cuda.use_mem_pool",
    "torch.cuda.memory.use_mem_pool",
)
def test_pool(library: Path, kind: str) -> None:
    """A pool's segments come from the functions; every kind of op works on them."""
    allocator = plugged(library, kind)
    counts = Counts(library)
    pool = loom.MemPool(allocator.allocator())
    assert pool.allocator is allocator.allocator()
    with loom.use_mem_pool(pool):
        x = torch.arange(1000.0, device="loom")
        x.data_ptr()
        y = (x * 2).sin()
        square = torch.eye(300, device="loom") @ torch.eye(300, device="loom")
    assert counts.allocs >= 1
    assert counts.last_device == 0
    assert counts.last_size % (2 * MIB) == 0, "segments have the caching allocator's sizes"
    assert counts.last_stream == loom.current_stream().native_handle
    assert [segment["segment_pool_id"] for segment in pool.snapshot()] == [pool.id] * counts.allocs
    torch.testing.assert_close(y.cpu(), (torch.arange(1000.0) * 2).sin())
    assert square.trace().item() == 300
    other = torch.ones(1000, device="loom:1")
    other.copy_(x)
    assert other.sum().item() == 499500
    assert torch.from_dlpack(x).device == x.device
    with loom.device_of(x):
        assert loom.current_device() == 0
    assert not x.is_pinned()
    x.copy_(torch.ones(1000).pin_memory(), non_blocking=True)
    assert x.sum().item() == 1000
    del x, y, square, pool
    loom.empty_cache()
    assert counts.frees == counts.allocs


@pytest.mark.parametrize("kind", KINDS)
def test_pool_dies_before_its_tensors(library: Path, kind: str) -> None:
    counts = Counts(library)
    pool = loom.MemPool(plugged(library, kind))
    with loom.use_mem_pool(pool):
        x = torch.ones(1000, device="loom")
        x.data_ptr()
    del pool
    gc.collect()
    loom.empty_cache()
    assert (counts.allocs, counts.frees) == (1, 0)
    assert (x + 1).sum().item() == 2000
    del x
    loom.empty_cache()
    assert counts.frees == 1


def test_pool_on_another_device(library: Path) -> None:
    counts = Counts(library)
    pool = loom.MemPool(plugged(library, "host"))
    with loom.use_mem_pool(pool, 1):
        x = torch.ones(10, device="loom:1")
        x.data_ptr()
    assert (counts.allocs, counts.last_device) == (1, 1)
    assert _C.find_stream(counts.last_stream or 0) == _C.default_stream(1)
    assert x.sum().item() == 10


@pytest.mark.parametrize("kind", KINDS)
def test_work_that_is_queued(library: Path, kind: str) -> None:
    """Memory goes back after the work that uses it, on workers, too."""
    counts = Counts(library)
    pool = loom.MemPool(plugged(library, kind))
    stream = loom.Stream()
    with loom.use_mem_pool(pool), loom.stream(stream):
        for _ in range(20):
            x = torch.ones(300_000, device="loom")
            y = x.cumsum(0)
            z = (y * 2).sum()
            del x, y
        assert z.item() == pytest.approx(300_000 * 300_001, rel=1e-5)
    del z, pool
    loom.empty_cache()
    assert counts.frees == counts.allocs > 0


def test_threads(library: Path) -> None:
    counts = Counts(library)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            pool = loom.MemPool(plugged(library, KINDS[seed % 2]))
            with loom.use_mem_pool(pool):
                for size in range(1, 30):
                    x = torch.full((size * 1000,), float(seed), device="loom")
                    assert (x * 2).sum().item() == 2000 * seed * size
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    loom.empty_cache()
    assert counts.frees == counts.allocs > 0


def test_out_of_memory(library: Path) -> None:
    before = loom.memory_stats()["num_ooms"]
    pool = loom.MemPool(plugged(library, "null"))
    with loom.use_mem_pool(pool), pytest.raises(torch.OutOfMemoryError, match=r"pluggable allocator.*null"):
        torch.ones(10, device="loom").data_ptr()
    assert loom.memory_stats()["num_ooms"] == before + 1
    assert torch.ones(10, device="loom").sum().item() == 10


@pytest.mark.parametrize(
    ("kind", "message"),
    [("garbage", "not memory of this process"), ("foreign", "not memory of this device")],
)
def test_addresses_that_cannot_be_used(library: Path, kind: str, message: str) -> None:
    pool = loom.MemPool(plugged(library, kind))
    with loom.use_mem_pool(pool), pytest.raises(ValueError, match=f"pluggable allocator returned.*{message}"):
        torch.ones(10, device="loom").data_ptr()
    assert torch.ones(10, device="loom").sum().item() == 10


def test_an_address_that_is_given_twice(library: Path) -> None:
    pool = loom.MemPool(plugged(library, "repeating"), no_split=True)
    with loom.use_mem_pool(pool):
        x = torch.ones(10, device="loom")
        x.data_ptr()
        with pytest.raises(ValueError, match="overlap"):
            torch.ones(10, device="loom").data_ptr()
    assert x.sum().item() == 10


def test_libraries_that_cannot_be_loaded(library: Path, tmp_path: Path) -> None:
    with pytest.raises(AllocatorLibraryError, match="no_such"):
        loom.PluggableAllocator(str(tmp_path / "no_such.so"), "a", "b")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(OSError, match=r"text\.so"):
        loom.PluggableAllocator(tmp_path / "text.so", "a", "b")
    with pytest.raises(AllocatorFunctionError, match="'no_such'"):
        loom.PluggableAllocator(library, "no_such", "no_free")
    with pytest.raises(AttributeError, match="'no_such'"):
        loom.PluggableAllocator(library, "null_alloc", "no_such")
    with pytest.raises(TypeError, match="alloc_fn_name must be a str"):
        loom.PluggableAllocator(library, 3, "no_free")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        loom.PluggableAllocator(3, "null_alloc", "no_free")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="allocator must be"):
        loom.MemPool("native")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null"):
        _C.MemorySource(0, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("launch", ["auto", pytest.param("chaos", marks=pytest.mark.slow)])
@pytest.mark.exercises(
    "torch.cuda.change_current_allocator",
    "torch.cuda.memory.change_current_allocator",
    "torch.cuda.memory._get_current_allocator",
    "torch.cuda.get_allocator_backend",
    "torch.cuda.memory.get_allocator_backend",
)
def test_current_allocator(library: Path, fork_loom: PythonRunner, kind: str, launch: str) -> None:
    env = {"TORCH_LOOM_LAUNCH": launch, "TORCH_LOOM_CHAOS_SEED": "3"} if launch == "chaos" else {}
    fork_loom(PROGRAMS / "current.py", env, given=(str(library), kind, launch))


def test_change_is_refused_after_first_use(library: Path) -> None:
    loom.init()
    with pytest.raises(AlreadyInitializedError, match="before the first tensor"):
        loom.change_current_allocator(plugged(library, "device"))
    with pytest.raises(TypeError, match="must be a PluggableAllocator"):
        loom.change_current_allocator("native")  # type: ignore[arg-type]
    assert loom.get_allocator_backend() == "native"


def test_protect_mode(library: Path, fork_loom: PythonRunner) -> None:
    """Where the host is fenced off, memory of both kinds is still within the kernels' reach."""
    fork_loom(PROGRAMS / "protect_mode.py", {"TORCH_LOOM_PROTECT": "1"}, given=str(library))

"""Seed 002: the names that are in no sentence of seed 003. Its tables have one row a name."""

from __future__ import annotations

import gc
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_loom.device as loom

PROGRAMS = Path(__file__).parent / "programs" / "seed_002"

MIB = 1 << 20


@pytest.mark.seed(2, "current_blas_handle", "get_gencode_flags")
@pytest.mark.exercises("torch.cuda.current_blas_handle", "torch.cuda.get_gencode_flags")
def test_nvidias_own_objects_are_refused_with_the_reason() -> None:
    for function in (loom.current_blas_handle, loom.get_gencode_flags):
        with pytest.raises(NotImplementedError, match=rf"torch\.loom\.{function.__name__} "):
            function()


@pytest.mark.seed(2, "memory_usage", "utilization", "temperature", "power_draw", "clock_rate")
@pytest.mark.exercises("torch.cuda.memory_usage", "torch.cuda.utilization", "torch.cuda.temperature")
@pytest.mark.exercises("torch.cuda.power_draw", "torch.cuda.clock_rate")
def test_telemetry_has_the_units_of_cuda() -> None:
    loom.init()
    for percent in (loom.memory_usage, loom.utilization):
        assert type(percent(1)) is int
        assert 0 <= percent(1) <= 100
    assert 0 < loom.temperature(1) < 120  # degrees Celsius
    assert 1_000 <= loom.power_draw(1) <= 2_000_000  # milliwatts
    assert 100 <= loom.clock_rate(1) <= 10_000  # MHz; the seed says Hz, torch 2.13 has MHz
    assert loom.clock_rate("loom:1") <= loom.get_device_properties(1).clock_rate_mhz


@pytest.mark.seed(2, "OutOfMemoryError")
@pytest.mark.exercises("torch.cuda.OutOfMemoryError")
def test_out_of_memory_error() -> None:
    assert loom.OutOfMemoryError is torch.OutOfMemoryError
    with pytest.raises(loom.OutOfMemoryError, match=r"allocate 32768\.00 GiB. GPU 1 has"):
        torch.empty(1 << 45, dtype=torch.uint8, device="loom:1").data_ptr()


@pytest.mark.seed(2, "CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing")
@pytest.mark.exercises("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.graph_pool_handle")
@pytest.mark.exercises("torch.cuda.is_current_stream_capturing")
def test_graphs() -> None:
    pool = loom.graph_pool_handle()
    assert pool != loom.graph_pool_handle()
    x = torch.zeros(4, device="loom")
    first, second = loom.CUDAGraph(), loom.CUDAGraph()
    assert loom.is_current_stream_capturing() is False
    with loom.graph(first, pool=pool):
        assert loom.is_current_stream_capturing() is True
        y = x + 1
    with loom.graph(second, pool=pool):
        z = y * 10
    assert first.pool() == second.pool() == pool
    for value in range(3):
        x.fill_(value)
        first.replay()
        second.replay()
        assert z.tolist() == [10.0 * (value + 1)] * 4


@pytest.mark.seed(2, "make_graphed_callables")
@pytest.mark.exercises("torch.cuda.make_graphed_callables")
def test_make_graphed_callables() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).to("loom")
    x = torch.randn(2, 4, device="loom")
    expected = layer(x).relu().sum()
    (gradient,) = torch.autograd.grad(expected, layer.weight)
    expected = expected.detach()  # a capture must not meet the graph of this run
    graphed = loom.make_graphed_callables(layer, (torch.randn(2, 4, device="loom"),))
    loss = graphed(x).relu().sum()
    loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(layer.weight.grad, gradient)


@pytest.mark.seed(2, "caching_allocator_alloc", "caching_allocator_delete", "get_allocator_backend")
@pytest.mark.exercises("torch.cuda.caching_allocator_alloc", "torch.cuda.caching_allocator_delete")
@pytest.mark.exercises("torch.cuda.get_allocator_backend")
def test_the_allocator_for_other_libraries() -> None:
    gc.collect()
    before = loom.memory_allocated(1)
    address = loom.caching_allocator_alloc(3 * MIB, 1, loom.Stream(1))
    assert loom.memory_allocated(1) == before + 3 * MIB
    loom.caching_allocator_delete(address)
    assert loom.memory_allocated(1) == before
    with pytest.raises(RuntimeError, match=f"invalid device pointer: {address:#x}"):
        loom.caching_allocator_delete(address)
    assert loom.get_allocator_backend() == "native"


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[str], str]:
    """Compiles C++ text into a shared library and returns its path."""
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler, "the tests need a C++ compiler, as building does"

    def compile_text(text: str) -> str:
        (tmp_path / "library.cpp").write_text(text)
        library = str(tmp_path / "library.so")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "library.cpp"], check=True)
        return library

    return compile_text


# Takes host memory, which this device can address, and counts.
_ALLOCATOR = """
#include <cstdlib>
#include <sys/types.h>
extern "C" {
long live = 0, total = 0;
void* take(ssize_t size, int device, void* stream) { ++live; ++total; return std::malloc(size); }
void give(void* memory, ssize_t size, int device, void* stream) { --live; std::free(memory); }
long live_blocks() { return live; }
long total_blocks() { return total; }
}
"""


@pytest.mark.slow
@pytest.mark.seed(2, "CUDAPluggableAllocator", "change_current_allocator")
@pytest.mark.exercises("torch.cuda.CUDAPluggableAllocator", "torch.cuda.change_current_allocator")
def test_an_allocator_from_a_shared_library(compiled: Callable[[str], str], warm_python) -> None:  # type: ignore[no-untyped-def]
    library = compiled(_ALLOCATOR)
    warm_python(PROGRAMS / "an_allocator_from_a_shared_library.py", given=library)


@pytest.mark.seed(2, "jiterator._create_jit_fn", "jiterator._create_multi_output_jit_fn")
@pytest.mark.exercises("torch.cuda.jiterator._create_jit_fn")
@pytest.mark.exercises("torch.cuda.jiterator._create_multi_output_jit_fn")
def test_jiterator() -> None:
    x, y = torch.rand(3, 1, device="loom"), torch.rand(4, device="loom", dtype=torch.float64)
    one = "template <typename T> T scaled(T x, T y, T alpha) { return alpha * x + y; }"
    scaled = loom.jiterator._create_jit_fn(one, alpha=1.0)
    assert scaled(x, y).shape == (3, 4)
    torch.testing.assert_close(scaled(x, y, alpha=2.0), 2 * x + y)
    two = "template <typename T> void both(T x, T y, T& sum, T& product) { sum = x + y; product = x * y; }"
    both = loom.jiterator._create_multi_output_jit_fn(two, num_outputs=2)
    total, product = both(x, y)
    torch.testing.assert_close(total, x + y)
    torch.testing.assert_close(product, x * y)


@pytest.mark.seed(2, "_sanitizer")
@pytest.mark.exercises("torch.cuda._sanitizer.enable_cuda_sanitizer")
@pytest.mark.exercises("torch.cuda._sanitizer.CUDASanitizerErrors", "torch.cuda._sanitizer.cuda_sanitizer")
def test_the_sanitizer_finds_a_race(capsys: pytest.CaptureFixture[str]) -> None:
    sanitizer = loom._sanitizer
    sanitizer.enable_cuda_sanitizer()
    try:
        assert sanitizer.cuda_sanitizer.enabled
        x = torch.ones(8, device="loom")
        with loom.stream(loom.Stream()), pytest.raises(sanitizer.CUDASanitizerErrors) as caught:
            x.add_(1)  # does not wait for the stream that made it
        assert len(caught.value.errors) == 1
    finally:
        sanitizer.cuda_sanitizer.disable()
    assert "possible data race" in capsys.readouterr().err

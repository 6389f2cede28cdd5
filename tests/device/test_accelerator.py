"""torch.accelerator, name by name: what it says and does is what torch.loom says and does."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import accelerator

import torch_loom.device as loom

PROGRAMS = Path(__file__).parent / "programs" / "accelerator"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner
    from tests.gate import Gate

MIB = 1 << 20

# The tests of this file are named after the name that they are about.
TESTED = {
    "Graph",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
}


def taken(num_bytes: int, device: str = "loom") -> torch.Tensor:
    tensor = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    tensor.data_ptr()
    return tensor


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gc.collect()
    loom.set_stream(loom.default_stream(0))
    loom.empty_cache()
    yield
    loom.set_stream(loom.default_stream(1))
    loom.set_stream(loom.default_stream(0))


def test_no_name_is_left_out() -> None:
    assert set(accelerator.__all__) == TESTED
    assert set(accelerator.memory.__all__) | set(accelerator.graphs.__all__) <= TESTED


def test_current_accelerator() -> None:
    assert accelerator.current_accelerator() == torch.device("loom")
    assert accelerator.current_accelerator(check_available=True) == torch.device("loom")


def test_is_available_and_device_count() -> None:
    assert accelerator.is_available() is loom.is_available() is True
    assert accelerator.device_count() == loom.device_count() == 2


def test_device_indices() -> None:
    assert accelerator.current_device_index() == 0
    for device in (1, "loom:1", torch.device("loom:1")):
        accelerator.set_device_index(device)
        assert accelerator.current_device_index() == loom.current_device() == 1
        assert torch.empty(1, device="loom").device.index == 1
        accelerator.set_device_index(0)
    accelerator.set_device_index(-1)
    assert accelerator.current_device_index() == 0
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        accelerator.set_device_index(2)
    with pytest.raises(ValueError, match="doesn't match the current accelerator loom"):
        accelerator.set_device_index("cpu")
    with pytest.raises(ValueError, match="index"):
        accelerator.set_device_index("loom")


def test_deprecated_names() -> None:
    with pytest.warns(FutureWarning, match="set_device_index"):
        accelerator.set_device_idx(1)
    with pytest.warns(FutureWarning, match="current_device_index"):
        assert accelerator.current_device_idx() == 1
    assert loom.current_device() == 1
    loom.set_device(0)


def test_device_index() -> None:
    with accelerator.device_index(1):
        assert loom.current_device() == 1
        with accelerator.device_index(None):
            assert loom.current_device() == 1
        with accelerator.device_index(0):
            assert loom.current_device() == 0
        assert loom.current_device() == 1
    assert loom.current_device() == 0
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        accelerator.device_index(2).__enter__()
    with pytest.raises(KeyError), accelerator.device_index(1):
        raise KeyError
    assert loom.current_device() == 0


def test_get_device_capability() -> None:
    """The dtypes that can be made and converted, and no other."""
    capability = accelerator.get_device_capability()
    assert capability == accelerator.get_device_capability("loom:1")
    works = set()
    ones = torch.ones(4, device="loom")
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    # PyTorch 2.14 has it, and no bit for it among the capabilities.
    for dtype in dtypes - {getattr(torch, "bcomplex32", None)}:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex to real, complex32
            try:
                back = torch.empty(4, dtype=dtype, device="loom").copy_(ones).to(torch.float32)
            except (NotImplementedError, RuntimeError):
                continue
        assert back.tolist() == [1.0] * 4
        works.add(dtype)
    assert capability == {"supported_dtypes": works}
    assert len(works) == 21
    for bad in (2, -1):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            accelerator.get_device_capability(bad)


def test_current_stream_and_set_stream() -> None:
    assert accelerator.current_stream() == loom.default_stream(0)
    stream = loom.Stream("loom:1")
    accelerator.set_stream(stream)
    assert accelerator.current_stream() == stream == loom.current_stream()
    assert accelerator.current_device_index() == 1, "the stream's device becomes current"
    assert accelerator.current_stream(0) == loom.default_stream(0)
    assert accelerator.current_stream("loom:1") == stream
    plain = torch.Stream(device="loom:0")
    accelerator.set_stream(plain)
    assert loom.current_stream() == plain
    with pytest.raises(TypeError):
        accelerator.set_stream(0)  # type: ignore[arg-type]


def test_current_stream_of_no_device(fork_loom: PythonRunner) -> None:
    # In a process of its own: where a dry run has had more devices, theirs are still asked for.
    fork_loom(PROGRAMS / "current_stream_of_no_device.py")


def test_synchronize(gate: Gate) -> None:
    stream = loom.Stream("loom:1")
    gate.hold(stream)
    accelerator.synchronize()
    accelerator.synchronize("loom:0")
    assert not stream.query(), "another device is not waited for"
    gate.open()
    accelerator.synchronize(1)
    assert stream.query()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        accelerator.synchronize(2)


def test_get_memory_info() -> None:
    before = accelerator.get_memory_info()
    assert before == loom.mem_get_info()
    tensor = taken(30 * MIB)
    free, total = accelerator.get_memory_info("loom:0")
    assert (free, total) == (before[0] - 30 * MIB, before[1])
    assert total == loom.get_device_properties().total_memory
    assert accelerator.get_memory_info(1) == loom.mem_get_info(1)
    del tensor


def test_memory_figures() -> None:
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    before = accelerator.memory_allocated()
    tensor = taken(30 * MIB)
    assert accelerator.memory_allocated() == before + 30 * MIB == loom.memory_allocated()
    assert accelerator.memory_reserved() == loom.memory_reserved() >= 30 * MIB
    assert accelerator.memory_allocated(1) == loom.memory_allocated(1)
    stats = accelerator.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 30 * MIB
    assert stats["allocation.all.allocated"] == 1
    del tensor
    assert accelerator.memory_allocated() == before
    assert accelerator.max_memory_allocated() == before + 30 * MIB == loom.max_memory_allocated()
    assert accelerator.max_memory_reserved() == loom.max_memory_reserved() >= 30 * MIB
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() == before
    accelerator.reset_accumulated_memory_stats("loom:0")
    assert accelerator.memory_stats(0)["allocated_bytes.all.allocated"] == 0


def test_empty_cache() -> None:
    taken(30 * MIB)
    reserved = accelerator.memory_reserved()
    accelerator.empty_cache()
    assert accelerator.memory_reserved() == reserved - 30 * MIB


def test_empty_host_cache() -> None:
    torch.empty(5 * MIB, dtype=torch.uint8).pin_memory()
    held = loom.host_memory_stats()["allocated_bytes.current"]
    accelerator.empty_host_cache()
    assert loom.host_memory_stats()["allocated_bytes.current"] <= held - 5 * MIB


@pytest.mark.parametrize("keep_graph", [False, True])
def test_graph(keep_graph: bool) -> None:
    x = torch.zeros(10, device="loom")
    x.data_ptr()
    stream, graph = torch.Stream(device="loom"), accelerator.Graph(keep_graph)
    with stream, graph:
        x += 1
        assert stream.is_capturing()
    assert x.sum().item() == 0
    graph.replay()
    graph.replay()
    accelerator.synchronize()
    assert x.sum().item() == 20
    assert isinstance(graph.pool(), tuple)
    other = accelerator.Graph(pool=graph.pool())
    with stream, other:
        y = x * 2
    other.replay()
    accelerator.synchronize()
    assert y.sum().item() == 40
    graph.reset()
    with pytest.raises(RuntimeError):
        graph.replay()

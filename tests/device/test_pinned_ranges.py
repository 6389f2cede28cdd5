"""Pinning memory that a program has already."""

from __future__ import annotations

import ctypes
import mmap
import threading
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom
from torch_loom.device.memory.pinning import pin_memory, unpin_memory
from torch_loom.errors import PinnedMemoryError

if TYPE_CHECKING:
    from tests.gate import Gate


@pytest.mark.exercises("torch.cuda._pin_memory_utils.pin_memory", "torch.cuda._pin_memory_utils.unpin_memory")
def test_pinned(gate: Gate) -> None:
    """Pinned memory is so to PyTorch, and copies of it do not wait for the stream."""
    host = torch.arange(1000.0)
    loom.init()
    assert not host.is_pinned()
    pin_memory(host.data_ptr(), host.nbytes)
    assert host.is_pinned()
    assert host[10:].is_pinned()
    stream = loom.Stream()
    device = torch.zeros(1000, device="loom")
    device.data_ptr()
    loom.synchronize()
    gate.hold(stream)
    with stream:
        device.copy_(host, non_blocking=True)
        assert not stream.query(), "the copy waits behind the gate, the host does not"
        gate.open()
        stream.synchronize()
    assert device.sum().item() == 499500
    unpin_memory(host.data_ptr())
    assert not host.is_pinned()


def test_unpinning_waits_for_copies(gate: Gate) -> None:
    host = torch.ones(100)
    pin_memory(host.data_ptr(), host.nbytes)
    device, stream = torch.zeros(100, device="loom"), loom.Stream()
    device.data_ptr()
    loom.synchronize()
    gate.hold(stream)
    with stream:
        device.copy_(host, non_blocking=True)
    opener = threading.Timer(0.05, gate.open)
    opener.start()
    unpin_memory(host.data_ptr())
    assert stream.query()
    opener.join()
    host.fill_(0)
    assert device.sum().item() == 100


def test_shared_memory() -> None:
    with mmap.mmap(-1, 1 << 20) as memory:
        whole = (ctypes.c_char * len(memory)).from_buffer(memory)
        address = ctypes.addressof(whole)
        pin_memory(address, len(memory))
        tensor = torch.frombuffer(memory, dtype=torch.uint8)
        assert tensor.is_pinned()
        assert tensor.to("loom", non_blocking=True).sum().item() == 0
        unpin_memory(address)
        del tensor, whole


def test_what_cannot_be_pinned() -> None:
    host = torch.ones(100)
    own = torch.ones(100).pin_memory()
    device = torch.ones(100, device="loom")
    address = host.data_ptr()
    pin_memory(address, 100)
    for start, size in ((address, 100), (address + 50, 4), (address - 8, 16), (address, 400)):
        with pytest.raises(PinnedMemoryError, match="pinned already"):
            pin_memory(start, size)
    with pytest.raises(PinnedMemoryError, match="pinned already"):
        pin_memory(own.data_ptr(), 4)
    with pytest.raises(PinnedMemoryError, match="device memory"):
        pin_memory(device.data_ptr(), 4)
    for start, size in ((0, 4), (8, 4), (2**64 - 1, 100), (address + 4096, 2**63 - 1)):
        with pytest.raises(RuntimeError, match="cannot be pinned"):
            pin_memory(start, size)
    for size in (0, -1, 2**63):
        with pytest.raises(PinnedMemoryError, match="size must be"):
            pin_memory(address, size)
    for start in (0, address + 4, own.data_ptr(), device.data_ptr(), 8):
        with pytest.raises(PinnedMemoryError, match="cannot be unpinned"):
            unpin_memory(start)
    unpin_memory(address)
    with pytest.raises(PinnedMemoryError, match="no registered range"):
        unpin_memory(address)
    for wrong in ("1", 1.0, None, True):
        with pytest.raises(TypeError):
            pin_memory(wrong, 4)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            unpin_memory(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            pin_memory(address, wrong)  # type: ignore[arg-type]
    for outside in (-1, 2**64):
        with pytest.raises(PinnedMemoryError, match="must be an address"):
            pin_memory(outside, 4)
    assert own.is_pinned()

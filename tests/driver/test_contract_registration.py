"""The contract of driver.h, sentence by sentence: memory that the program has already."""

from __future__ import annotations

import contextlib
import ctypes
import mmap

import pytest
from contract import MIB, Chip
from torch_loom._C_testing import driver


class Host:
    """Memory of the host that nobody has told the driver about."""

    def __init__(self, size: int) -> None:
        self._kept = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self._kept)

    def read(self) -> bytes:
        return self._kept.raw


def test_registered_memory_is_the_devices(chip: Chip) -> None:
    """register_memory: From now on a range of the host's memory, which its owner keeps, counts as memory of
    `device`, or as pinned host memory where that is −1: locate() says so, and kernels and copies reach it. It
    takes none of the device's memory."""
    for device, kind in ((1, driver.AddressKind.DEVICE), (-1, driver.AddressKind.PINNED_HOST)):
        host = Host(4096)
        chip.driver.register_memory(device, host.address, 4096)
        for offset in (0, 1, 4095):
            where = chip.driver.locate(host.address + offset)
            assert (where.kind, where.device) == (kind, device)
            assert where.device_address == where.engine_address == host.address + offset
        assert chip.driver.locate(host.address + 4096).kind == driver.AddressKind.UNKNOWN
        assert [chip.used_bytes(each) for each in (0, 1)] == [0, 0]
        stream = chip.driver.create_stream(1)
        source = chip.buffer("device1", b"from there")
        with chip.busy(stream) if chip.queues else contextlib.nullcontext():
            chip.driver.copy(stream, host.address, source.address, 10)
            assert chip.driver.query_stream(stream) is not chip.queues
        chip.driver.synchronize_stream(stream)
        assert host.read()[:10] == (b"from there" if chip.runs else bytes(10))
        chip.driver.deallocate(source.address)
        chip.driver.unregister_memory(host.address)


def page_before_a_hole() -> int:
    """Return the address of a page of this process behind which it has no memory. It is kept."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    sizes = (ctypes.c_size_t(2 * mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE)
    page: int = libc.mmap(None, *sizes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_size_t(0))
    libc.munmap(ctypes.c_void_p(page + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE))
    return page


def test_register_what_is_no_free_range(chip: Chip) -> None:
    """register_memory: Throws InvalidArgument for zero bytes, null, addresses where the host has no memory,
    and a range that overlaps a registered one or memory of this driver."""
    host, pinned, device = Host(256), chip.driver.allocate_host(64), chip.driver.allocate(0, MIB)
    chip.driver.register_memory(0, host.address + 64, 64)
    refused = {
        "are no range": [(host.address, 0), (0, 8), (2**64 - 8, 16)],
        "are not memory of this process": [
            (8, 8),
            (2**47 + 64, 8),
            (page_before_a_hole(), 2 * mmap.PAGESIZE),
        ],
        "overlap .* memory of device 0": [(host.address + start, 64) for start in (64, 1, 127)],
        "overlap .* pinned already": [(pinned, 64), (pinned + 8, 8)],
        "are device memory": [(device, MIB), (device + 8, 8)],
    }
    for reason, ranges in refused.items():
        for address, size in ranges:
            with pytest.raises(driver.InvalidArgument, match=reason):
                chip.driver.register_memory(-1, address, size)
    for start in (0, 128):
        chip.driver.register_memory(-1, host.address + start, 64)
    for number in (-2, 2):
        with pytest.raises(driver.InvalidArgument, match="device must be in"):
            chip.driver.register_memory(number, host.address + 192, 8)
    with pytest.raises(driver.InvalidArgument):
        chip.driver.deallocate(host.address)


def test_unregister(chip: Chip) -> None:
    """unregister_memory: Ends that: the caller has waited for all work that uses it. Throws InvalidArgument
    for an address at which no registered range begins; null is a no-op."""
    host, pinned, device = Host(64), chip.driver.allocate_host(64), chip.driver.allocate(0, MIB)
    for _ in range(2):
        chip.driver.register_memory(-1, host.address, 64)
        for other in (host.address + 1, host.address - 1, pinned, device, 8, 2**64 - 1):
            with pytest.raises(driver.InvalidArgument, match="no registered range begins at"):
                chip.driver.unregister_memory(other)
        chip.driver.unregister_memory(0)
        chip.driver.unregister_memory(host.address)
        assert chip.driver.locate(host.address).kind == driver.AddressKind.UNKNOWN
    with pytest.raises(driver.InvalidArgument):
        chip.driver.unregister_memory(host.address)

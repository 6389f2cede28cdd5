"""The contract of driver.h, sentence by sentence: memory shared between processes."""

from __future__ import annotations

import os
import threading

import pytest
from contract import CAPACITY_BYTES, GRANULE_BYTES, Chip
from torch_loom._C_testing import driver


def other(chip: Chip) -> Chip:
    """A further driver of the kind, as another process would have it."""
    info = chip.driver.info()
    return Chip(info.name, protect=info.name == "virtual" and not info.host_addressable)


def test_share_and_map(chip: Chip) -> None:
    """share: Makes the allocation around a device address memory that other processes can map, once; its
    addresses and contents stay, whatever runs meanwhile.
    map_shared: Maps such memory of another process, all of the file, into the device's address range; it is a
    descriptor of the caller's, and may be closed."""
    if "share" in chip.lacks:
        return
    address = chip.driver.allocate(1, 3 * GRANULE_BYTES)
    chip.driver.write(address + GRANULE_BYTES, b"contents")
    shared = chip.driver.share(1, address + GRANULE_BYTES)
    assert (shared.bytes, shared.offset) == (3 * GRANULE_BYTES, GRANULE_BYTES)
    assert chip.driver.share(1, address).file == shared.file
    assert chip.driver.read(address + GRANULE_BYTES, 9) == b"contents\0"
    peer = other(chip)
    file = os.dup(shared.file)
    mapped = peer.driver.map_shared(0, file)
    os.close(file)
    assert peer.driver.locate(mapped + shared.bytes - 1).device == 0
    assert peer.driver.read(mapped + GRANULE_BYTES, 8) == b"contents"
    peer.driver.write(mapped, b"answer")
    assert chip.driver.read(address, 6) == b"answer"
    peer.driver.deallocate(0, mapped)
    assert chip.driver.read(address, 6) == b"answer"


def test_share_while_kernels_run(chip: Chip) -> None:
    """share: Makes the allocation around a device address memory that other processes can map, once; its
    addresses and contents stay, whatever runs meanwhile."""
    if "share" in chip.lacks:
        return
    addresses = [chip.driver.allocate(0, GRANULE_BYTES) for _ in range(8)]
    stop, number = threading.Event(), [0]
    stream = chip.driver.create_stream(0)

    def fill() -> None:
        while not stop.is_set() or number[0] == 0:
            number[0] = number[0] % 200 + 1
            for address in addresses:
                chip.driver.fill(stream, address, number[0], GRANULE_BYTES)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        for address in addresses:
            chip.driver.share(0, address)
    finally:
        stop.set()
        thread.join()
    chip.driver.synchronize_stream(stream)
    assert all(chip.driver.read(a, GRANULE_BYTES) == bytes([number[0]]) * GRANULE_BYTES for a in addresses)


def test_shared_memory_outlives_the_allocation(chip: Chip) -> None:
    """share: Who has mapped it keeps it when it is given back, or this process ends.
    deallocate: Gives back what allocate() or map_shared() returned, at once: the caller has waited for all
    work that uses it."""
    if "share" in chip.lacks:
        return
    address = chip.driver.allocate(0, GRANULE_BYTES)
    chip.driver.write(address, b"kept")
    peer = other(chip)
    mapped = peer.driver.map_shared(1, chip.driver.share(0, address).file)
    chip.driver.deallocate(0, address)
    assert chip.used_bytes() == 0
    again = chip.driver.allocate(0, GRANULE_BYTES)
    assert again == address
    assert chip.driver.read(again, 4) == bytes(4)
    assert peer.driver.read(mapped, 4) == b"kept"
    peer.driver.deallocate(1, mapped)
    with pytest.raises(driver.InvalidArgument, match="was not returned by"):
        peer.driver.deallocate(1, mapped)


def test_mapping_costs_nothing(chip: Chip) -> None:
    """map_shared: It costs no device memory: the process that shares it pays."""
    if "share" in chip.lacks:
        return
    address = chip.driver.allocate(0, CAPACITY_BYTES)
    peer = other(chip)
    peer.driver.allocate(0, CAPACITY_BYTES)
    for _ in range(5):
        mapped = peer.driver.map_shared(0, chip.driver.share(0, address).file)
        assert peer.driver.memory_info(0).free_bytes == 0
        peer.driver.deallocate(0, mapped)


def test_share_what_is_not_allocated(chip: Chip) -> None:
    """share: Throws InvalidArgument for an address in no allocation, and for memory that map_shared()
    returned; NotSupported where memory has no contents; SharingError when the host refuses, and the memory
    is as it was."""
    address = chip.driver.allocate(0, GRANULE_BYTES)
    if "share" in chip.lacks:
        with pytest.raises(driver.NotSupported, match="no contents that another process could see"):
            chip.driver.share(0, address)
        return
    for wrong in (address - 1, address + GRANULE_BYTES, 0, 1 << 63):
        with pytest.raises(driver.InvalidArgument, match="lies in no allocation of device 0"):
            chip.driver.share(0, wrong)
    peer = other(chip)
    mapped = peer.driver.map_shared(0, chip.driver.share(0, address).file)
    with pytest.raises(driver.InvalidArgument, match="lies in no allocation of device 0"):
        peer.driver.share(0, mapped)


def test_share_without_descriptors(chip: Chip) -> None:
    """share: Throws InvalidArgument for an address in no allocation, and for memory that map_shared()
    returned; NotSupported where memory has no contents; SharingError when the host refuses, and the memory
    is as it was."""
    import resource

    if "share" in chip.lacks:
        return
    address = chip.driver.allocate(0, GRANULE_BYTES)
    chip.driver.write(address, b"still")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(driver.SharingError, match="cannot share device memory: Too many open files"):
            chip.driver.share(0, address)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert chip.driver.read(address, 5) == b"still"
    assert chip.driver.share(0, address).bytes == GRANULE_BYTES


def test_map_what_is_not_shared(chip: Chip) -> None:
    """map_shared: Throws SharingError for a file that is no shared device memory, NotSupported as share()
    does."""
    with open("/dev/null", "rb") as nothing, open(__file__, "rb") as source:
        for file in (-1, nothing.fileno(), source.fileno(), os.memfd_create("other")):
            error = driver.NotSupported if "map_shared" in chip.lacks else driver.SharingError
            with pytest.raises(error, match=r"no shared device memory|no contents"):
                chip.driver.map_shared(0, file)

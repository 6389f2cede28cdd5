"""The contract of driver.h, sentence by sentence: memory shared between processes."""

from __future__ import annotations

import os
import struct
import threading

import pytest
from contract import CAPACITY_BYTES, GRANULE_BYTES, Chip
from torch_loom._C_testing import driver


def other(chip: Chip) -> Chip:
    """A further driver of the kind, as another process would have it."""
    return Chip(chip.name, protect=chip.is_protected)


def test_share_and_map(chip: Chip) -> None:
    """share: Makes the allocation around a device address memory that other processes can map, once; its
    addresses and contents stay, whatever runs meanwhile.
    map_shared: Maps such memory of another process, all `bytes` of it, into the device's address range. The
    process that shares it must live, and keep it allocated, until this returns."""
    if not chip.shares:
        return
    address = chip.driver.allocate(1, 3 * GRANULE_BYTES)
    chip.driver.write(address + GRANULE_BYTES, b"contents")
    shared = chip.driver.share(1, address + GRANULE_BYTES)
    assert (shared.bytes, shared.offset) == (3 * GRANULE_BYTES, GRANULE_BYTES)
    assert chip.driver.share(1, address).handle == shared.handle
    assert chip.driver.share(1, chip.driver.allocate(1, 1)).handle != shared.handle
    peer = other(chip)
    mapped = peer.driver.map_shared(0, shared.handle, shared.bytes)
    assert peer.driver.locate(mapped + shared.bytes - 1).device == 0
    assert peer.driver.read(mapped + GRANULE_BYTES, 8) == b"contents"
    peer.driver.write(mapped, b"answer")
    assert chip.driver.read(address, 6) == b"answer"
    peer.driver.deallocate(mapped)
    assert chip.driver.read(address, 6) == b"answer"


def test_share_in_a_room(chip: Chip) -> None:
    """share: Makes the allocation around a device address memory that other processes can map, once; its
    addresses and contents stay, whatever runs meanwhile.
    deallocate: Of memory in a room it gives back the `bytes` at `address`, multiples of 2 MiB wherever they
    lie in it; of other memory all, and `bytes` is 0."""
    if not chip.shares or not chip.driver.info().memory_rooms:
        return
    start = chip.driver.allocate(0, 2 * GRANULE_BYTES, room_bytes=CAPACITY_BYTES)
    chip.driver.allocate(0, 2 * GRANULE_BYTES, at=start + 2 * GRANULE_BYTES)
    chip.driver.write(start + 3 * GRANULE_BYTES, b"contents")
    # Two pieces side by side are one; what comes beside it later is another.
    shared = chip.driver.share(0, start + GRANULE_BYTES)
    sizes = (shared.bytes, shared.offset, shared.reach)
    assert sizes == (4 * GRANULE_BYTES, GRANULE_BYTES, 3 * GRANULE_BYTES)
    end = chip.driver.allocate(0, GRANULE_BYTES, at=start + 4 * GRANULE_BYTES)
    assert chip.driver.share(0, end).handle != shared.handle
    peer = other(chip)
    mapped = peer.driver.map_shared(0, shared.handle, shared.bytes)
    chip.driver.deallocate(start + GRANULE_BYTES, GRANULE_BYTES)
    rest = chip.driver.share(0, start + 3 * GRANULE_BYTES)
    assert rest.handle == shared.handle
    assert (rest.offset, rest.reach) == (3 * GRANULE_BYTES, GRANULE_BYTES)
    assert chip.driver.share(0, start).reach == GRANULE_BYTES
    peer.driver.write(mapped + 3 * GRANULE_BYTES, b"an answer")
    assert chip.driver.read(start + 3 * GRANULE_BYTES, 9) == b"an answer"
    # What comes back to the hole is nobody else's.
    hole = chip.driver.allocate(0, GRANULE_BYTES, at=start + GRANULE_BYTES)
    chip.driver.write(hole, b"private")
    assert peer.driver.read(mapped + GRANULE_BYTES, 7) == bytes(7)


def test_share_while_kernels_run(chip: Chip) -> None:
    """share: Makes the allocation around a device address memory that other processes can map, once; its
    addresses and contents stay, whatever runs meanwhile."""
    if not chip.shares:
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
    deallocate: Gives back what allocate(), allocate_host() or map_shared() returned, at once: the caller has
    waited for all work that uses it."""
    if not chip.shares:
        return
    address = chip.driver.allocate(0, GRANULE_BYTES)
    chip.driver.write(address, b"kept")
    peer = other(chip)
    mapped = peer.driver.map_shared(1, chip.driver.share(0, address).handle, GRANULE_BYTES)
    chip.driver.deallocate(address)
    assert chip.used_bytes() == 0
    again = chip.driver.allocate(0, GRANULE_BYTES)
    assert again == address
    assert chip.driver.read(again, 4) == bytes(4)
    assert peer.driver.read(mapped, 4) == b"kept"
    peer.driver.deallocate(mapped)
    with pytest.raises(driver.InvalidArgument, match="was not returned by"):
        peer.driver.deallocate(mapped)


def test_mapping_costs_nothing(chip: Chip) -> None:
    """map_shared: It costs no device memory: the process that shares it pays."""
    if not chip.shares:
        return
    address = chip.driver.allocate(0, CAPACITY_BYTES)
    peer = other(chip)
    peer.driver.allocate(0, CAPACITY_BYTES)
    for _ in range(5):
        mapped = peer.driver.map_shared(0, chip.driver.share(0, address).handle, CAPACITY_BYTES)
        assert peer.driver.memory_info(0).free_bytes == 0
        peer.driver.deallocate(mapped)


def test_share_what_is_not_allocated(chip: Chip) -> None:
    """share: Throws InvalidArgument for an address in no allocation, and for memory that map_shared()
    returned; NotSupported where Info::shared_memory is false; SharingError when the host refuses, and
    the memory is as it was."""
    address = chip.driver.allocate(0, GRANULE_BYTES)
    if not chip.shares:
        with pytest.raises(driver.NotSupported, match="no contents that another process could see"):
            chip.driver.share(0, address)
        return
    for wrong in (address - 1, address + GRANULE_BYTES, 0, 1 << 63):
        with pytest.raises(driver.InvalidArgument, match="lies in no allocation of device 0"):
            chip.driver.share(0, wrong)
    peer = other(chip)
    mapped = peer.driver.map_shared(0, chip.driver.share(0, address).handle, GRANULE_BYTES)
    with pytest.raises(driver.InvalidArgument, match="lies in no allocation of device 0"):
        peer.driver.share(0, mapped)


def test_share_without_descriptors(chip: Chip) -> None:
    """share: Throws InvalidArgument for an address in no allocation, and for memory that map_shared()
    returned; NotSupported where Info::shared_memory is false; SharingError when the host refuses, and
    the memory is as it was."""
    import resource

    if not chip.shares:
        return
    address = chip.driver.allocate(0, GRANULE_BYTES)
    chip.driver.write(address, b"still")
    if chip.name not in driver.names():
        return  # shares what it has opened already
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
    """map_shared: Throws SharingError for a handle that names no shared memory of this size any more,
    NotSupported as share() does."""

    def name(descriptor: int, inode: int = 0) -> bytes:
        return struct.pack("=iiQ", os.getpid(), descriptor, inode or os.fstat(descriptor).st_ino).ljust(
            64, b"\0"
        )

    with open("/dev/null", "rb") as nothing, open(__file__, "rb") as source:
        memory = os.memfd_create("other")
        forged = [name(file) for file in (nothing.fileno(), source.fileno(), memory)]
        for handle in (bytes(64), b"\xff" * 64, name(-1, 1), name(9999, 1), *forged):
            for size in (0, 1, GRANULE_BYTES, 2**64 - 1):
                with pytest.raises(driver.SharingError if chip.shares else driver.NotSupported):
                    chip.driver.map_shared(0, handle, size)
        os.close(memory)


def test_map_what_is_gone(chip: Chip) -> None:
    """map_shared: The process that shares it must live, and keep it allocated, until this returns.
    map_shared: Throws SharingError for a handle that names no shared memory of this size any more,
    NotSupported as share() does."""
    if not chip.shares:
        return
    address = chip.driver.allocate(0, GRANULE_BYTES)
    shared, peer = chip.driver.share(0, address), other(chip)
    for size in (0, 1, GRANULE_BYTES - 1, 2 * GRANULE_BYTES):
        with pytest.raises(driver.SharingError):
            peer.driver.map_shared(0, shared.handle, size)
    chip.driver.deallocate(address)
    with pytest.raises(driver.SharingError):
        peer.driver.map_shared(0, shared.handle, GRANULE_BYTES)

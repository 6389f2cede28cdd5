"""The contract of driver.h, sentence by sentence: memory."""

from __future__ import annotations

import ctypes
import itertools
import random

import pytest
from contract import CAPACITY_BYTES, GRANULE_BYTES, MIB, Chip, every_driver, thread
from torch_loom._C_testing import driver

HUGE = [2**63 - 1, 2**63, 2**64 - 2 * MIB, 2**64 - 1]


def test_allocate_is_aligned_and_usable(chip: Chip) -> None:
    """allocate: Takes `bytes` of device memory, aligned to 2 MiB, contents undefined."""
    blocks = [(size, chip.driver.allocate(0, size)) for size in (1, 512, 2 * MIB, 2 * MIB + 1, 5 * MIB)]
    assert all(address % (2 * MIB) == 0 and address != 0 for _, address in blocks)
    spans = sorted((address, address + size) for size, address in blocks)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    if chip.driver.info().executes_kernels:
        for number, (size, address) in enumerate(blocks):
            chip.driver.write(address, bytes([number]) * size)
        assert all(chip.driver.read(a, size) == bytes([n]) * size for n, (size, a) in enumerate(blocks))


def test_allocate_does_not_wait(chip: Chip) -> None:
    """allocate: Does not wait for streams."""
    stream = chip.driver.create_stream(0)
    with chip.busy(stream):
        chip.driver.deallocate(chip.driver.allocate(0, MIB))
        assert chip.driver.query_stream(stream) is not chip.runs


def test_allocate_nothing(chip: Chip) -> None:
    """allocate: Throws InvalidArgument for zero bytes, and for a device outside 0 … device_count − 1, as do
    all methods below."""
    with pytest.raises(driver.InvalidArgument, match="bytes must be at least 1, got 0"):
        chip.driver.allocate(0, 0)
    assert chip.used_bytes() == 0


@pytest.mark.parametrize("asked", [CAPACITY_BYTES + 1, *HUGE])
def test_out_of_memory_with_its_numbers(chip: Chip, asked: int) -> None:
    """allocate: Throws OutOfMemory, with all its numbers, when `bytes`, rounded up to the driver's
    granularity, are more than are free; nothing changes then."""
    kept = chip.driver.allocate(1, 2 * GRANULE_BYTES)
    with pytest.raises(
        driver.OutOfMemory, match=f"device 1 is out of memory: asked for {asked} bytes"
    ) as caught:
        chip.driver.allocate(1, asked)
    error = caught.value
    assert isinstance(error, MemoryError)
    assert error.device == 1
    assert error.asked_bytes == min(asked, 2**63 - 1)
    assert error.free_bytes == CAPACITY_BYTES - 2 * GRANULE_BYTES
    assert error.total_bytes == CAPACITY_BYTES
    assert chip.used_bytes(1) == 2 * GRANULE_BYTES
    chip.driver.deallocate(kept)
    assert chip.used_bytes(1) == 0


@pytest.mark.parametrize(
    "size", [1, GRANULE_BYTES, 3 * GRANULE_BYTES + 1, CAPACITY_BYTES - 1, CAPACITY_BYTES]
)
def test_fill_up_exactly(chip: Chip, size: int) -> None:
    """allocate: Throws OutOfMemory, with all its numbers, when `bytes`, rounded up to the driver's
    granularity, are more than are free; nothing changes then."""
    rounded = -(-size // GRANULE_BYTES) * GRANULE_BYTES
    blocks = [chip.driver.allocate(0, size) for _ in range(CAPACITY_BYTES // rounded)]
    assert len(set(blocks)) == len(blocks)
    free = CAPACITY_BYTES % rounded
    assert chip.driver.memory_info(0).free_bytes == free
    with pytest.raises(driver.OutOfMemory) as caught:
        chip.driver.allocate(0, free + 1)
    assert (caught.value.asked_bytes, caught.value.free_bytes) == (free + 1, free)
    chip.driver.allocate(1, CAPACITY_BYTES)
    chip.driver.deallocate(blocks[0])
    chip.driver.allocate(0, rounded)


@every_driver
@pytest.mark.parametrize("capacity", [0, 1, MIB, 3 * MIB, 5 * MIB - 1])
def test_capacity_that_is_no_multiple(name: str, capacity: int) -> None:
    """allocate: Throws OutOfMemory, with all its numbers, when `bytes`, rounded up to the driver's
    granularity, are more than are free; nothing changes then."""
    chip = Chip(name, memory_bytes=capacity)
    for _ in range(capacity // GRANULE_BYTES):
        chip.driver.allocate(0, GRANULE_BYTES)
    with pytest.raises(driver.OutOfMemory) as caught:
        chip.driver.allocate(0, 1)
    assert (caught.value.free_bytes, caught.value.total_bytes) == (capacity % GRANULE_BYTES, capacity)


def test_holes_cost_nothing(chip: Chip) -> None:
    """allocate: Holes between allocations cost no memory."""
    blocks = [chip.driver.allocate(0, GRANULE_BYTES) for _ in range(CAPACITY_BYTES // GRANULE_BYTES)]
    for address in blocks[::2]:
        chip.driver.deallocate(address)
    whole = chip.driver.allocate(0, CAPACITY_BYTES // 2)
    assert chip.driver.memory_info(0).free_bytes == 0
    chip.driver.deallocate(whole)


@every_driver
def test_the_worst_holes_cost_nothing(name: str) -> None:
    """allocate: Holes between allocations cost no memory."""
    # Robson's adversary: fill up, free all that leaves only holes too small for twice the size, ask for that.
    chip = Chip(name, memory_bytes=256 * GRANULE_BYTES)
    live: dict[int, int] = {}
    size = GRANULE_BYTES
    while size <= 64 * GRANULE_BYTES:
        while chip.driver.memory_info(0).free_bytes >= size:
            live[chip.driver.allocate(0, size)] = size
        hole_start = min(live)
        for address, following in itertools.pairwise([*sorted(live), max(live) + 2 * size]):
            if following - hole_start < 2 * size:
                chip.driver.deallocate(address)
                del live[address]
            else:
                hole_start = address + live[address]
        size *= 2
    assert chip.used_bytes() == sum(live.values())
    assert all(chip.driver.locate(address).device == 0 for address in live)


def test_rooms(chip: Chip) -> None:
    """allocate: A room keeps its addresses until all memory in it was given back. Throws InvalidArgument for
    memory that does not fit into its room, starts at no multiple of 2 MiB, or overlaps memory that is there.
    deallocate: Of memory in a room it gives back the `bytes` at `address`, multiples of 2 MiB wherever they
    lie in it; of other memory all, and `bytes` is 0."""
    if not chip.driver.info().memory_rooms:
        for place in ({"room_bytes": GRANULE_BYTES}, {"at": chip.driver.allocate(0, GRANULE_BYTES)}):
            with pytest.raises(driver.NotSupported, match="no rooms"):
                chip.driver.allocate(0, GRANULE_BYTES, **place)
        return
    room_bytes = 2 * CAPACITY_BYTES
    start = chip.driver.allocate(0, 2 * GRANULE_BYTES, room_bytes=room_bytes)
    after = [chip.driver.allocate(0, GRANULE_BYTES) for _ in range(4)]
    assert all(not start <= address < start + room_bytes for address in after)
    for address in after:
        chip.driver.deallocate(address)
    far = start + room_bytes - GRANULE_BYTES
    assert chip.driver.allocate(0, GRANULE_BYTES, at=far) == far
    middle = start + 2 * GRANULE_BYTES
    assert chip.driver.allocate(0, 3 * GRANULE_BYTES, at=middle) == middle
    assert chip.used_bytes() == 6 * GRANULE_BYTES
    for where, size in [(far, 2), (middle - GRANULE_BYTES, 1), (middle + GRANULE_BYTES // 2, 1), (middle, 9)]:
        with pytest.raises(driver.InvalidArgument, match=r"allocate: .* (room|overlap)"):
            chip.driver.allocate(0, size * GRANULE_BYTES, at=where)
    with pytest.raises(driver.InvalidArgument, match="do not fit into a room"):
        chip.driver.allocate(0, 2 * GRANULE_BYTES, room_bytes=GRANULE_BYTES)
    # A hole that covers the end of one piece and the start of the next.
    chip.driver.deallocate(start + GRANULE_BYTES, 2 * GRANULE_BYTES)
    assert chip.used_bytes() == 4 * GRANULE_BYTES
    for where, size in [(start, 2), (start + GRANULE_BYTES, 1), (start, 0), (start + 512, 1)]:
        with pytest.raises(driver.InvalidArgument, match="the room of device 0 has no"):
            chip.driver.deallocate(where, size * GRANULE_BYTES)
    assert chip.driver.allocate(0, GRANULE_BYTES, at=start + GRANULE_BYTES) == start + GRANULE_BYTES
    if chip.runs:
        chip.driver.write(start, bytes([7]) * 2 * GRANULE_BYTES)
        assert chip.driver.read(start + GRANULE_BYTES - 1, 2) == bytes([7, 7])
    chip.driver.deallocate(start, 2 * GRANULE_BYTES)
    chip.driver.deallocate(middle + GRANULE_BYTES, 2 * GRANULE_BYTES)
    chip.driver.deallocate(far, GRANULE_BYTES)
    assert chip.used_bytes() == 0
    with pytest.raises(driver.InvalidArgument, match="no room of device 0"):
        chip.driver.allocate(0, GRANULE_BYTES, at=start)  # it has ended with its memory
    plain = chip.driver.allocate(0, 2 * GRANULE_BYTES)
    with pytest.raises(driver.InvalidArgument, match="lie in no room"):
        chip.driver.deallocate(plain, GRANULE_BYTES)


def test_a_room_on_a_full_device(chip: Chip) -> None:
    """allocate: Throws OutOfMemory, with all its numbers, when `bytes`, rounded up to the driver's
    granularity, are more than are free; nothing changes then."""
    if not chip.driver.info().memory_rooms:
        return
    start = chip.driver.allocate(0, CAPACITY_BYTES, room_bytes=2 * CAPACITY_BYTES)
    for place in ({"at": start + CAPACITY_BYTES}, {"room_bytes": GRANULE_BYTES}):
        with pytest.raises(driver.OutOfMemory, match=r"0 of .* are free"):
            chip.driver.allocate(0, GRANULE_BYTES, **place)
    chip.driver.deallocate(start + GRANULE_BYTES, GRANULE_BYTES)
    chip.driver.allocate(0, GRANULE_BYTES, at=start + CAPACITY_BYTES)
    assert chip.used_bytes() == CAPACITY_BYTES


def test_random_patterns_fit(chip: Chip) -> None:
    """allocate: Holes between allocations cost no memory."""
    rng = random.Random(0)
    live: dict[int, int] = {}
    for _ in range(5000):
        size = min(GRANULE_BYTES * 2 ** rng.randrange(5), chip.driver.memory_info(0).free_bytes)
        if size and rng.random() < 0.6:
            address = chip.driver.allocate(0, size)
            assert all(address + size <= other or other + live[other] <= address for other in live)
            live[address] = size
        elif live:
            address = rng.choice(list(live))
            chip.driver.deallocate(address)
            del live[address]
        assert chip.used_bytes() == sum(live.values())


def test_8_threads(chip: Chip) -> None:
    """allocate: Takes `bytes` of device memory, aligned to 2 MiB, contents undefined.
    deallocate: Gives back what allocate(), allocate_host() or map_shared() returned, at once: the caller has
    waited for all work that uses it."""

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[int] = []
        for _ in range(300):
            if mine and (len(mine) == 4 or rng.random() < 0.5):
                address = mine.pop(rng.randrange(len(mine)))
                if chip.driver.info().executes_kernels:
                    assert chip.driver.read(address, 8) == bytes([seed]) * 8, "two threads hold one address"
                chip.driver.deallocate(address)
            else:
                mine.append(chip.driver.allocate(0, rng.randrange(1, GRANULE_BYTES + 1)))
                if chip.driver.info().executes_kernels:
                    chip.driver.write(mine[-1], bytes([seed]) * 8)
        for address in mine:
            chip.driver.deallocate(address)

    with thread(*(lambda seed=seed: churn(seed) for seed in range(8))):
        pass
    assert chip.used_bytes() == 0


def test_deallocate_gives_back_at_once(chip: Chip) -> None:
    """deallocate: Gives back what allocate(), allocate_host() or map_shared() returned, at once: the caller
    has waited for all work that uses it."""
    stream = chip.driver.create_stream(0)
    with chip.busy(stream):
        for _ in range(3):
            address = chip.driver.allocate(0, CAPACITY_BYTES)
            chip.driver.deallocate(address)
            assert chip.used_bytes() == 0


def test_deallocate_another_address(chip: Chip) -> None:
    """deallocate: Throws InvalidArgument for any other address; null is a no-op."""
    address, pinned = chip.driver.allocate(0, 2 * GRANULE_BYTES), chip.driver.allocate_host(64)
    freed = chip.driver.allocate(0, 1)
    chip.driver.deallocate(freed)
    interior = (address + 1, address + GRANULE_BYTES, pinned + 1, pinned + 63)
    registered = ctypes.create_string_buffer(64)
    chip.driver.register_memory(-1, ctypes.addressof(registered), 64)
    for other in (*interior, freed, ctypes.addressof(registered), 64, 2**64 - 1):
        with pytest.raises(driver.InvalidArgument, match=r"not returned by allocate\(\)"):
            chip.driver.deallocate(other)
    assert chip.used_bytes() == 2 * GRANULE_BYTES
    chip.driver.deallocate(0)
    chip.driver.deallocate(address)
    with pytest.raises(driver.InvalidArgument):
        chip.driver.deallocate(address)
    assert chip.used_bytes() == 0


def test_memory_info(chip: Chip) -> None:
    """memory_info: Free and total bytes; what was allocated counts as rounded up to the driver's
    granularity."""
    info = chip.driver.memory_info(0)
    assert (info.free_bytes, info.total_bytes) == (CAPACITY_BYTES, CAPACITY_BYTES)
    for size, used in ((1, 1), (GRANULE_BYTES, 2), (GRANULE_BYTES + 1, 4)):
        chip.driver.allocate(0, size)
        info = chip.driver.memory_info(0)
        assert info.total_bytes - info.free_bytes == used * GRANULE_BYTES
        assert info.total_bytes == CAPACITY_BYTES
    assert chip.used_bytes(1) == 0


def test_locate_interior(chip: Chip) -> None:
    """locate: Where an address lies, interior addresses included."""
    for device in range(2):
        address = chip.driver.allocate(device, 3 * MIB)
        for offset in (0, 1, MIB, 3 * MIB - 1):
            where = chip.driver.locate(address + offset)
            assert (where.kind, where.device) == (driver.AddressKind.DEVICE, device)
    pinned = chip.driver.allocate_host(100)
    for offset in (0, 1, 99):
        where = chip.driver.locate(pinned + offset)
        assert (where.kind, where.device) == (driver.AddressKind.PINNED_HOST, -1)
    pageable = chip.buffer("pageable", b"x")
    for address in (0, 1, pinned + 100, pageable.address, 2**63, 2**64 - 1):
        where = chip.driver.locate(address)
        assert (where.kind, where.device) == (driver.AddressKind.UNKNOWN, -1)
    chip.driver.deallocate(pinned)
    assert chip.driver.locate(pinned).kind == driver.AddressKind.UNKNOWN


def test_engine_address(chip: Chip) -> None:
    """locate: The engine's address of allocated memory is found as well as the program's."""
    info = chip.driver.info()
    pinned = chip.driver.allocate_host(64)
    for address in (0, 1, pinned, 2**64 - 1):
        where = chip.driver.locate(address)
        assert (where.device_address, where.engine_address) == (address, address)
    for device in range(2):
        address = chip.driver.allocate(device, CAPACITY_BYTES)
        engine = chip.driver.locate(address).engine_address
        assert (engine == address) is info.unified_addresses
        for offset in (0, 1, GRANULE_BYTES, CAPACITY_BYTES - 1):
            for known in (address + offset, engine + offset):
                where = chip.driver.locate(known)
                assert (where.kind, where.device) == (driver.AddressKind.DEVICE, device)
                assert (where.device_address, where.engine_address) == (address + offset, engine + offset)
        if info.executes_kernels:
            chip.driver.write(address + 5, b"device")
            assert ctypes.string_at(engine + 5, 6) == b"device"
            ctypes.memmove(engine + 5, b"engine", 6)
            assert chip.driver.read(address + 5, 6) == b"engine"


def test_engine_addresses_adjoin_where_addresses_do(chip: Chip) -> None:
    """locate: The engine's address of allocated memory is found as well as the program's."""
    blocks = sorted(chip.driver.allocate(0, GRANULE_BYTES) for _ in range(8))
    for address, following in itertools.pairwise(blocks):
        if following - address == GRANULE_BYTES:
            engines = [chip.driver.locate(each).engine_address for each in (address, following)]
            assert engines[1] - engines[0] == GRANULE_BYTES


def test_fenced_memory_goes_back(chip: Chip) -> None:
    """deallocate: Gives back what allocate(), allocate_host() or map_shared() returned, at once: the caller
    has waited for all work that uses it."""
    if not chip.runs or chip.name not in driver.names():
        return  # memory that is not allocated cannot be looked at
    address = chip.driver.allocate(0, 2 * MIB)
    chip.driver.write(address, b"x" * 100)
    chip.driver.deallocate(address)
    # The pages are gone, with what they held.
    assert chip.driver.read(address, 100) == bytes(100)


def test_locate_the_whole_range(chip: Chip) -> None:
    """locate: All of a device's address range counts as that device's, allocated or not."""
    for device in range(2):
        address = chip.driver.allocate(device, CAPACITY_BYTES)
        chip.driver.deallocate(address)
        for offset in (0, CAPACITY_BYTES // 2, CAPACITY_BYTES - 1):
            where = chip.driver.locate(address + offset)
            assert (where.kind, where.device) == (driver.AddressKind.DEVICE, device)


@every_driver
def test_locate_between_devices(name: str) -> None:
    """locate: Where an address lies, interior addresses included."""
    # An address one past the end of a device's memory belongs to nobody, least of all to the next device.
    chip = Chip(name, device_count=16)
    for device in range(16):
        address = chip.driver.allocate(device, 1)
        for step in (1, -1):
            probe = address
            while chip.driver.locate(probe).device == device:
                probe += step * MIB
            while chip.driver.locate(probe).device != device:
                probe -= step * 4096
            beyond = chip.driver.locate(probe + step * 4096)
            # Before the start lies the gap at the end of another range, never its memory.
            assert (beyond.kind, beyond.device) == (driver.AddressKind.UNKNOWN, -1)


def test_locate_does_not_wait(chip: Chip) -> None:
    """locate: Waits for no stream, never throws."""
    address = chip.driver.allocate(0, 1)
    stream = chip.driver.create_stream(0)
    with chip.busy(stream):
        assert chip.driver.locate(address).device == 0
        assert chip.driver.query_stream(stream) is not chip.runs


def test_host_memory(chip: Chip) -> None:
    """allocate_host: Host memory that copies can reach without staging, aligned to 64 bytes."""
    for size in (1, 63, 64, 4097):
        address = chip.driver.allocate_host(size)
        assert address % 64 == 0
        chip.driver.write(address, b"\xa5" * size)
        assert chip.driver.read(address, size) == b"\xa5" * size
        chip.driver.deallocate(address)
    assert chip.used_bytes() == 0


@pytest.mark.parametrize("asked", [2**62, *HUGE])
def test_host_memory_runs_out(chip: Chip, asked: int) -> None:
    """allocate_host: Throws InvalidArgument for zero bytes, OutOfMemory when the host has no more."""
    with pytest.raises(driver.OutOfMemory, match=f"asked for {asked} bytes of pinned memory") as caught:
        chip.driver.allocate_host(asked)
    error = caught.value
    assert (error.device, error.asked_bytes) == (-1, min(asked, 2**63 - 1))
    assert 0 < error.free_bytes < error.total_bytes
    with pytest.raises(driver.InvalidArgument, match="bytes must be at least 1, got 0"):
        chip.driver.allocate_host(0)


def test_deallocate_host(chip: Chip) -> None:
    """deallocate: Gives back what allocate(), allocate_host() or map_shared() returned, at once: the caller
    has waited for all work that uses it."""
    address = chip.driver.allocate_host(64)
    chip.driver.deallocate(address)
    assert chip.driver.locate(address).kind == driver.AddressKind.UNKNOWN
    with pytest.raises(driver.InvalidArgument):
        chip.driver.deallocate(address)

"""The contract of driver.h, sentence by sentence: the chip."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contract import MIB, Chip, every_driver
from torch_loom._C_testing import driver

TAKES_A_DEVICE: dict[str, Callable[[driver.Driver, int], object]] = {
    "allocate": lambda d, device: d.allocate(device, 1),
    "memory_info": lambda d, device: d.memory_info(device),
    "share": lambda d, device: d.share(device, 0),
    "map_shared": lambda d, device: d.map_shared(device, bytes(64), 1 << 21),
    "create_stream": lambda d, device: d.create_stream(device),
}
FIELDS = [name for name in dir(driver.Info) if not name.startswith("_")]


def test_info_is_constant(chip: Chip) -> None:
    """info: Constant over the life of the driver. Never throws, touches no device."""
    before = [getattr(chip.driver.info(), field) for field in FIELDS]
    stream = chip.driver.create_stream(0)
    chip.driver.submit(stream, lambda: None)
    chip.driver.allocate(0, MIB)
    assert [getattr(chip.driver.info(), field) for field in FIELDS] == before


@every_driver
@pytest.mark.parametrize("count", [0, 1, 2, 64])
def test_device_count(name: str, count: int) -> None:
    """info: Constant over the life of the driver. Never throws, touches no device."""
    chip = Chip(name, device_count=count)
    assert chip.driver.info().device_count == count
    assert all(chip.used_bytes(device) == 0 for device in range(count))


@every_driver
def test_64_devices_are_64_memories(name: str) -> None:
    """memory_info: Free and total bytes; what was allocated counts as rounded up to the driver's
    granularity."""
    chip = Chip(name, device_count=64, memory_bytes=16 << 30)
    addresses = [chip.driver.allocate(device, (device + 1) * 2 * MIB) for device in range(64)]
    for device, address in enumerate(addresses):
        assert chip.driver.locate(address).device == device
        assert chip.used_bytes(device) == (device + 1) * 2 * MIB
    for device, address in enumerate(addresses):
        chip.driver.deallocate(address)
        assert chip.used_bytes(device) == 0


@pytest.mark.parametrize("call", TAKES_A_DEVICE.values(), ids=TAKES_A_DEVICE)
@pytest.mark.parametrize("device", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_device_that_is_not_there(
    chip: Chip, call: Callable[[driver.Driver, int], object], device: int
) -> None:
    """allocate: Throws InvalidArgument for zero bytes, and for a device outside 0 … device_count − 1, as do
    all methods below."""
    with pytest.raises(driver.InvalidArgument, match=rf"device must be in 0 … 1, got {device}"):
        call(chip.driver, device)


@every_driver
@pytest.mark.parametrize("call", TAKES_A_DEVICE.values(), ids=TAKES_A_DEVICE)
def test_no_devices(name: str, call: Callable[[driver.Driver, int], object]) -> None:
    """allocate: Throws InvalidArgument for zero bytes, and for a device outside 0 … device_count − 1, as do
    all methods below."""
    with pytest.raises(driver.InvalidArgument, match="there is no device 0: the driver has none"):
        call(Chip(name, device_count=0).driver, 0)


def test_peers(chip: Chip) -> None:
    """copy: Copies bytes in stream order; either side is device, pinned or pageable memory."""
    source, target = chip.buffer("device0", b"from one"), chip.buffer("device1", b"to other")
    stream = chip.driver.create_stream(0)
    chip.driver.copy(stream, target.address, source.address, 8)
    chip.driver.synchronize_stream(stream)
    if chip.runs:
        assert target.read() == b"from one"

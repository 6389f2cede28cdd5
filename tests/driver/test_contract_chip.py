"""The contract of driver.h, sentence by sentence: the chip."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contract import CAPACITY_BYTES, MIB, Chip
from torch_loom._C_testing import driver

TAKES_A_DEVICE: dict[str, Callable[[driver.Driver, int], object]] = {
    "properties": lambda d, device: d.properties(device),
    "telemetry": lambda d, device: d.telemetry(device),
    "can_access_peer": lambda d, device: d.can_access_peer(device, 0),
    "can_access_peer, peer": lambda d, device: d.can_access_peer(0, device),
    "allocate": lambda d, device: d.allocate(device, 1),
    "deallocate": lambda d, device: d.deallocate(device, 0),
    "memory_info": lambda d, device: d.memory_info(device),
    "create_stream": lambda d, device: d.create_stream(device),
}


def test_info_is_constant(chip: Chip) -> None:
    """info: Constant over the life of the driver."""
    fields = ("name", "engine", "executes_kernels", "host_addressable", "lacks")
    before = [getattr(chip.driver.info(), field) for field in fields]
    stream = chip.driver.create_stream(0)
    chip.driver.submit(stream, lambda: None)
    chip.driver.allocate(0, MIB)
    assert [getattr(chip.driver.info(), field) for field in fields] == before


@pytest.mark.parametrize("name", driver.names())
@pytest.mark.parametrize("count", [0, 1, 2, 64])
def test_device_count(name: str, count: int) -> None:
    """device_count: Number of physical devices, 0 or more. Never throws, touches no device."""
    chip = Chip(name, device_count=count)
    assert chip.driver.device_count() == count
    assert all(chip.used_bytes(device) == 0 for device in range(count))


@pytest.mark.parametrize("name", driver.names())
def test_64_devices_are_64_memories(name: str) -> None:
    """device_count: Number of physical devices, 0 or more."""
    chip = Chip(name, device_count=64, memory_bytes=16 << 30)
    addresses = [chip.driver.allocate(device, (device + 1) * 2 * MIB) for device in range(64)]
    for device, address in enumerate(addresses):
        assert chip.driver.locate(address).device == device
        assert chip.used_bytes(device) == (device + 1) * 2 * MIB
    for device, address in enumerate(addresses):
        chip.driver.deallocate(device, address)
        assert chip.used_bytes(device) == 0


@pytest.mark.parametrize("call", TAKES_A_DEVICE.values(), ids=TAKES_A_DEVICE)
@pytest.mark.parametrize("device", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_device_that_is_not_there(
    chip: Chip, call: Callable[[driver.Driver, int], object], device: int
) -> None:
    """properties: Throws InvalidArgument for a device outside 0 … device_count() − 1, as do all methods
    below."""
    with pytest.raises(driver.InvalidArgument, match=rf"device must be in 0 … 1, got {device}"):
        call(chip.driver, device)


@pytest.mark.parametrize("name", driver.names())
@pytest.mark.parametrize("call", TAKES_A_DEVICE.values(), ids=TAKES_A_DEVICE)
def test_no_devices(name: str, call: Callable[[driver.Driver, int], object]) -> None:
    """properties: Throws InvalidArgument for a device outside 0 … device_count() − 1, as do all methods
    below."""
    with pytest.raises(driver.InvalidArgument, match="there is no device 0: the driver has none"):
        call(Chip(name, device_count=0).driver, 0)


def test_properties(chip: Chip) -> None:
    """properties: Throws InvalidArgument for a device outside 0 … device_count() − 1, as do all methods
    below."""
    for device in range(2):
        properties = chip.driver.properties(device)
        assert chip.driver.info().name in properties.name
        assert properties.total_memory_bytes == CAPACITY_BYTES
        assert min(properties.major, properties.num_cores, properties.clock_rate_mhz) >= 1
        assert properties.minor >= 0


def test_telemetry_is_of_this_moment(chip: Chip) -> None:
    """telemetry: Figures at this moment."""
    assert chip.driver.telemetry(1).memory_utilization_percent == 0
    address = chip.driver.allocate(1, CAPACITY_BYTES // 4)
    assert chip.driver.telemetry(1).memory_utilization_percent == 25
    assert chip.driver.telemetry(0).memory_utilization_percent == 0
    chip.driver.deallocate(1, address)
    telemetry = chip.driver.telemetry(1)
    assert telemetry.memory_utilization_percent == 0
    assert telemetry.clock_rate_mhz >= 1
    figures = (telemetry.utilization_percent, telemetry.power_watts, telemetry.temperature_celsius)
    if "telemetry" in chip.lacks:
        assert figures == (0, 0, 0)
    else:
        assert 0 <= figures[0] <= 100


def test_telemetry_of_no_memory() -> None:
    """telemetry: Figures at this moment."""
    assert Chip("virtual", memory_bytes=0).driver.telemetry(0).memory_utilization_percent == 0


def test_telemetry_does_not_wait(chip: Chip) -> None:
    """telemetry: Does not wait for the device."""
    stream = chip.driver.create_stream(0)
    with chip.busy(stream):
        chip.driver.telemetry(0)
        assert chip.driver.query_stream(stream) is not chip.runs


def test_peers(chip: Chip) -> None:
    """can_access_peer: True when a copy between the two needs no staging on the host. A device is not its
    own peer."""
    answers = [[chip.driver.can_access_peer(device, peer) for peer in range(2)] for device in range(2)]
    assert answers == [[False, True], [True, False]]
    source, target = chip.buffer("device0", b"from one"), chip.buffer("device1", b"to other")
    chip.driver.copy(chip.driver.create_stream(0), target.address, source.address, 8)
    if chip.moves:
        assert target.read() == b"from one"

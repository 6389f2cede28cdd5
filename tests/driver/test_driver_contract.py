"""The contract itself: its size, that every sentence has a test, and that what is lacking is said."""

from __future__ import annotations

import pytest
from contract import Chip, kernel_comment, methods, quotes, sentences
from torch_loom._C_testing import driver


def test_at_most_32_methods() -> None:
    assert 0 < len(methods()) <= 32


def test_python_has_every_method() -> None:
    assert [name for name in methods() if not hasattr(driver.Driver, name)] == []


@pytest.mark.parametrize("method", methods())
def test_every_method_is_documented_and_tested(method: str) -> None:
    comment = methods()[method]
    assert comment, f"{method}() has no comment in driver.h"
    assert quotes()[method], f"no test quotes the contract of {method}()"


@pytest.mark.parametrize(("method", "comment"), [*methods().items(), ("Kernel", kernel_comment())])
def test_every_sentence_is_tested(method: str, comment: str) -> None:
    quoted = quotes()[method]
    assert [text for text in quoted if text not in comment] == [], "quoted, but not in driver.h"
    untested = [text for text in sentences(comment) if not any(text in quote for quote in quoted)]
    assert untested == [], f"no test quotes this of {method}()"


def test_only_methods_are_quoted() -> None:
    assert set(quotes()) <= {*methods(), "Kernel"}


def test_lacks_name_methods_and_reasons(chip: Chip) -> None:
    for entry in chip.driver.info().lacks:
        method, colon, reason = entry.partition(": ")
        assert method in methods(), entry
        assert colon, entry
        assert len(reason.split()) >= 3, entry
    assert len(chip.lacks) == len(chip.driver.info().lacks), "a method is named twice"


def test_lacks_agree_with_the_flags(chip: Chip) -> None:
    info = chip.driver.info()
    assert info.executes_kernels is chip.runs is chip.moves
    assert ("fill" in chip.lacks) == ("copy" in chip.lacks)


def test_what_each_driver_lacks() -> None:
    """Adding to this list is a decision, not an accident."""
    assert set(Chip("virtual").lacks) == {"telemetry", "create_stream"}
    assert set(Chip("null").lacks) == {
        "telemetry",
        "create_stream",
        "submit",
        "copy",
        "fill",
        "share",
        "map_shared",
    }


def test_engines() -> None:
    assert Chip("virtual").driver.info().engine == driver.Engine.CPU
    assert Chip("null").driver.info().engine == driver.Engine.META


def test_fenced_memory_is_not_addressable() -> None:
    assert Chip("virtual").driver.info().host_addressable
    assert not Chip("virtual", protect=True).driver.info().host_addressable
    assert not Chip("null", protect=True).driver.info().host_addressable


def test_unknown_driver() -> None:
    with pytest.raises(driver.InvalidArgument, match=r"unknown driver 'cuda'; known drivers: virtual, null"):
        driver.create("cuda", 1, 1 << 30)


@pytest.mark.parametrize("name", driver.names())
@pytest.mark.parametrize(("device_count", "memory_bytes"), [(-1, 1 << 30), (1, -1)])
def test_negative_configuration(name: str, device_count: int, memory_bytes: int) -> None:
    with pytest.raises(driver.InvalidArgument, match="must be 0 or more, got -1"):
        driver.create(name, device_count, memory_bytes)


@pytest.mark.parametrize("name", driver.names())
@pytest.mark.parametrize("memory_bytes", [2**48, 2**62, 2**63 - 1])
def test_more_memory_than_addresses(name: str, memory_bytes: int) -> None:
    with pytest.raises(driver.Error, match=r"cannot reserve address space .* lower TORCH_LOOM_MEMORY"):
        driver.create(name, 1, memory_bytes)


def test_read_and_write_only_what_the_host_can_touch(chip: Chip) -> None:
    address = chip.driver.allocate(0, 8)
    pinned = chip.driver.allocate_host(8)
    chip.driver.write(pinned, b"12345678")
    assert chip.driver.read(pinned, 8) == b"12345678"
    if chip.driver.info().executes_kernels:
        chip.driver.write(address, b"12345678")
        assert chip.driver.read(address + 2, 3) == b"345"
    else:
        with pytest.raises(driver.NotSupported, match="cannot address the memory of driver"):
            chip.driver.read(address, 8)
        with pytest.raises(driver.NotSupported, match="cannot address the memory of driver"):
            chip.driver.write(address, b"12345678")
    with pytest.raises(driver.InvalidArgument, match="neither device nor pinned"):
        chip.driver.read(64, 8)
    with pytest.raises(driver.InvalidArgument, match="neither device nor pinned"):
        chip.driver.read(pinned, 9)


def test_handles_of_another_driver(chip: Chip) -> None:
    stream, event = chip.driver.create_stream(0), chip.driver.create_event()
    other = Chip("virtual").driver
    with pytest.raises(driver.InvalidArgument, match="belongs to another driver"):
        other.query_stream(stream)
    with pytest.raises(driver.InvalidArgument, match="belongs to another driver"):
        other.query_event(event)


def test_exception_types() -> None:
    bases = {
        "OutOfMemory": MemoryError,
        "InvalidArgument": ValueError,
        "NotReady": RuntimeError,
        "NotSupported": NotImplementedError,
        "Unusable": RuntimeError,
    }
    for name, base in bases.items():
        assert issubclass(getattr(driver, name), base)

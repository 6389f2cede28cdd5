"""The contract itself: its size, that every sentence has a test, and drivers from libraries."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest
from contract import MIRROR, ROOT, Chip, every_driver, kernel_comment, methods, quotes, sentences
from torch_loom._C_testing import driver


def test_at_most_25_methods() -> None:
    assert 0 < len(methods()) <= 25


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


CAPABILITIES = [
    "executes_kernels",
    "queues_kernels",
    "sticky_failures",
    "host_addressable",
    "unified_addresses",
    "peer_access",
    "shared_memory",
    "memory_rooms",
    "stream_priorities",
    "stream_activity",
    "commits_late",
]


def test_capabilities_are_booleans(chip: Chip) -> None:
    others = {"name": str, "engine": str, "device_count": int}
    fields = dict.fromkeys(CAPABILITIES, bool) | others
    info = chip.driver.info()
    assert {name: type(getattr(info, name)) for name in dir(info) if not name.startswith("_")} == fields


def test_what_each_driver_can() -> None:
    """Adding to this list is a decision, not an accident."""
    can = {
        name: {field for field in CAPABILITIES if getattr(Chip(name).driver.info(), field)}
        for name in ("virtual", "null", MIRROR)
    }
    assert set(CAPABILITIES) - can["virtual"] == {"sticky_failures", "stream_priorities"}
    assert can["null"] == {"unified_addresses", "peer_access", "memory_rooms"}
    assert can[MIRROR] == {"executes_kernels", "queues_kernels", "sticky_failures", "shared_memory"}


def test_mirror_is_written_against_driver_h_alone() -> None:
    """The proof that the contract is enough: no other header of ours, and no symbol of ours is missing."""
    files = sorted((ROOT / "tests/driver/mirror").iterdir())
    ours = {
        name
        for path in files
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert ours == {"driver/driver.h", "memory.h", "streams.h"}
    # Loaded by itself, with every symbol bound at once: nothing of ours stands behind it.
    ctypes.CDLL(MIRROR, mode=os.RTLD_NOW)


def test_engines() -> None:
    names = {"virtual": "cpu", "null": "meta", MIRROR: "cpu"}
    assert {name: Chip(name).driver.info().engine for name in names} == names


def test_fenced_memory_is_not_addressable() -> None:
    assert Chip("virtual").driver.info().host_addressable
    assert not Chip("virtual", protect=True).driver.info().host_addressable
    assert not Chip("null", protect=True).driver.info().host_addressable
    assert not Chip("virtual", protect=True).driver.info().unified_addresses


def test_unknown_driver() -> None:
    with pytest.raises(driver.InvalidArgument, match=r"unknown driver 'cuda'; known drivers: virtual, null"):
        driver.create("cuda", 1, 1 << 30)


def library(tmp_path: Path, text: str) -> str:
    """Compile a library, for what a wrong one does."""
    source, target = tmp_path / "wrong.cpp", tmp_path / "wrong.so"
    source.write_text(text, encoding="utf-8")
    command = ["c++", "-std=c++20", "-shared", "-fPIC", f"-I{ROOT / 'csrc'}", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return str(target)


def test_libraries_without_a_driver(tmp_path: Path) -> None:
    not_a_library = tmp_path / "text.so"
    not_a_library.write_text("text", encoding="utf-8")
    for path in (str(tmp_path / "none.so"), str(not_a_library), str(tmp_path)):
        with pytest.raises(driver.InvalidArgument, match=f"cannot load the driver of {path}: "):
            driver.create(path, 1, 1 << 30)
    empty = library(tmp_path, "int nothing;")
    with pytest.raises(driver.InvalidArgument, match="has no driver: one of its files must say"):
        driver.create(empty, 1, 1 << 30)


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("return nullptr;", driver.InvalidArgument, "returned no driver"),
        ('throw loom::NotSupported("not here");', driver.NotSupported, "not here"),
        ('throw loom::OutOfMemory("full", 1, 2, 3, 4);', driver.OutOfMemory, "full"),
    ],
)
def test_libraries_that_refuse(tmp_path: Path, body: str, error: type[Exception], message: str) -> None:
    path = library(
        tmp_path,
        f"""
        #include "driver/driver.h"
        loom::driver::Driver* create(const loom::driver::DriverConfig&) {{ {body} }}
        LOOM_DRIVER_LIBRARY(create);
        """,
    )
    with pytest.raises(error, match=message):
        driver.create(path, 1, 1 << 30)


def test_a_library_of_another_contract(tmp_path: Path) -> None:
    path = library(
        tmp_path, 'extern "C" struct { unsigned contract; void* create; } loom_driver{99, nullptr};'
    )
    with pytest.raises(driver.InvalidArgument, match="compiled against version 99 of the contract"):
        driver.create(path, 1, 1 << 30)


def test_mirror_refuses_what_it_has_not() -> None:
    with pytest.raises(driver.NotSupported, match="mirror has no launch mode chaos"):
        Chip(MIRROR, launch=driver.Launch.CHAOS)


@every_driver
@pytest.mark.parametrize(("device_count", "memory_bytes"), [(-1, 1 << 30), (1, -1)])
def test_negative_configuration(name: str, device_count: int, memory_bytes: int) -> None:
    with pytest.raises(driver.InvalidArgument, match="must be 0 or more, got -1"):
        driver.create(name, device_count, memory_bytes)


@every_driver
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

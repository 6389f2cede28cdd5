"""Every command takes one way: who may call a driver's streams, events, kernels and copies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"

# The way itself, and where a device's streams and an event begin and end.
WAY = {"runtime/commands.cpp", "runtime/waiting.cpp", "runtime/targets.h"}
# The sanitizer waits for what a launch has written out of the program's order, which no reader may see.
ALLOWED = WAY | {"runtime/device.cpp", "runtime/worlds.cpp"}
# Methods of a driver by whatever name it goes, and those that other classes have as well.
OWN_NAMES = (
    "create_stream|destroy_stream|query_stream|synchronize_stream|drain_stream|create_event|destroy_event|"
    "record_event|wait_event|query_event|synchronize_event|elapsed_ns|runs_in_place"
)
SHARED_NAMES = "submit|copy|fill"
CALL = re.compile(
    rf"(?P<of>[\w>.()-]*?\w+(?:\([\w ]*\))?)(?:\.|->)(?P<method>{OWN_NAMES}|{SHARED_NAMES})\(", re.MULTILINE
)
# What is no driver: PyTorch's host allocator, an op's operands, the simulated clock.
NO_DRIVER = {"instance()", "lending", "parent", "load()"}
COMMENT = re.compile(r"//[^\n]*")


def calls_of_a_driver(text: str) -> list[str]:
    found = []
    for match in CALL.finditer(COMMENT.sub("", text)):
        receiver = re.split(r"\.|->", match["of"])[-1].lstrip("(")
        is_driver = "driver" in receiver.lower()
        if receiver not in NO_DRIVER and (is_driver or match["method"] not in SHARED_NAMES.split("|")):
            found.append(match[0])
    return found


@pytest.mark.long
def test_only_the_way_itself_talks_to_a_driver() -> None:
    wrong = {}
    for folder in ("runtime", "torch"):
        for path in sorted((CSRC / folder).rglob("*")):
            name = str(path.relative_to(CSRC))
            if path.suffix not in {".h", ".cpp", ".inc"} or name in ALLOWED:
                continue
            if calls := calls_of_a_driver(path.read_text(encoding="utf-8")):
                wrong[name] = calls
    assert wrong == {}


def test_the_way_itself_talks_to_a_driver() -> None:
    text = "".join((CSRC / name).read_text(encoding="utf-8") for name in sorted(WAY))
    methods = {re.split(r"\.|>", call.rstrip("("))[-1] for call in calls_of_a_driver(text)}
    assert {"submit", "copy", "fill", "record_event", "wait_event", "synchronize_event"} <= methods


def test_the_check() -> None:
    bad = [
        "devices().driver().submit(stream, kernel);",
        "driver_->copy(stream, to, from, bytes);",
        "place.driver->fill(stream, to, 0, bytes);",
        "other.record_event(event, stream);",
        "if (!get().driver().runs_in_place(handle)) {}",
    ]
    for line in bad:
        assert calls_of_a_driver(line), line
    good = [
        "runtime::record_event(event, stream);",
        "untold::copy(driver, stream, to, from, bytes);",
        "// driver.submit() blocks",
        "queue_->submit(stream, recording, make);",
        "driver.locate(address);",
        "lending.runs_in_place()",
    ]
    for line in good:
        assert not calls_of_a_driver(line), line


def test_commands_are_filled_in_one_place() -> None:
    """`describe` in tape.h makes the command; others add what is their kind's own."""
    own = re.compile(r"\bCommand \w+(\{\}|;| = \{)")
    wrong = [
        str(path.relative_to(CSRC))
        for folder in ("runtime", "torch")
        for path in sorted((CSRC / folder).rglob("*.cpp"))
        if own.search(COMMENT.sub("", path.read_text(encoding="utf-8")))
    ]
    assert wrong == []


def test_time_comes_from_one_clock() -> None:
    """Deadlines are patience and not time that a program sees: these may ask the host."""
    patience = {
        "util/clock.h",
        "util/clock.cpp",
        "util/spin.h",
        "driver/host/chaos.cpp",
        "driver/host/gate.cpp",
        "torch/hooks/shutdown.cpp",
        "distributed/work.cpp",
        # A flight record has the host's time, by which it is joined with those of other ranks.
        "distributed/recorder.cpp",
        # PyTorch's WorkInfo has points of the host's clock, whose distance is the device's.
        "distributed/group.cpp",
    }
    reads = re.compile(r"(steady_clock|system_clock|high_resolution_clock)::now|clock_gettime|gettimeofday")
    asked = {
        str(path.relative_to(CSRC))
        for path in sorted(CSRC.rglob("*"))
        if path.suffix in {".h", ".cpp"}
        and path.relative_to(CSRC).parts[0] != "testing"
        and reads.search(COMMENT.sub("", path.read_text(encoding="utf-8")))
    }
    assert asked <= patience

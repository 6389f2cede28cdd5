"""``--loom-leaks``: a test that leaves device memory behind fails, and shows the lines that took it."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# A block of device memory: its device and address.
_Block = tuple[int, int]
_MOST_SHOWN = 10
_RUNNER = re.compile(r"[\\/](_pytest|pytest|pluggy|xdist|execnet|unittest)[\\/]|^<string>$")


def add_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--loom-leaks",
        action="store_true",
        help="Fail a test after which device memory is left that it took, and show where it was taken.",
    )


def plugin(config: pytest.Config) -> Leaks | None:
    """Return what watches tests; None without the option."""
    return Leaks() if config.option.loom_leaks else None


class Leaks:
    """Compares the blocks in use when a test's fixtures are gone with those before they were made.

    What fixtures of a wider scope than a function take is theirs. cuBLAS's workspaces are given back before.
    """

    def __init__(self) -> None:
        self._known: set[_Block] = set()
        self._has_failed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[Any]:
        self._known = set(_live_blocks())
        self._has_failed = True  # until its body has run
        _record()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        before = set(_live_blocks())
        try:
            return (yield)
        finally:
            self._known |= set(_live_blocks()) - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Iterator[Any]:
        # The traceback of a test that fails keeps its names, which is no fault of its own.
        result = yield
        self._has_failed = False
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[Any]:
        result = yield
        if self._has_failed:
            return result
        # pytest drops what fixtures returned after this hook.
        if (values := getattr(item, "funcargs", None)) is not None:
            values.clear()
        if self._left():
            gc.collect()  # takes long: only where a cycle may keep memory
            if left := self._left():
                # Reported once: what the next test finds is not its own.
                pytest.fail(_words(left), pytrace=False)
        return result

    def _left(self) -> dict[_Block, dict[str, Any]]:
        return {block: how for block, how in _live_blocks().items() if block not in self._known}


def _words(left: dict[_Block, dict[str, Any]]) -> str:
    total = sum(block["requested_size"] for block in left.values())
    lines = [f"{total} bytes of device memory in {len(left)} tensor(s) are left that the test took:"]
    largest = sorted(left.items(), key=lambda item: -item[1]["requested_size"])
    for (device, _), block in largest[:_MOST_SHOWN]:
        lines.append(f"  {block['requested_size']} bytes on device {device}, taken in")
        lines += [f"    {frame}" for frame in _frames(block)]
    if len(left) > _MOST_SHOWN:
        lines.append(f"  and {len(left) - _MOST_SHOWN} more")
    lines.append("A name that outlives the test, a cache or a cycle with __del__ keeps them.")
    return "\n".join(lines)


def _frames(block: dict[str, Any]) -> list[str]:
    from torch_loom import _C

    frames = [
        f"{frame['filename']}:{frame['line']} {frame['name']}"
        for frame in block.get("frames", ())
        if not (_C.is_library_file(frame["filename"]) or _RUNNER.search(frame["filename"]))
    ]
    return frames[:4] or ["a place that was not recorded: an operation in C++, or in another thread"]


def _live_blocks() -> dict[_Block, dict[str, Any]]:
    """Return the blocks that tensors have; none before the devices are used."""
    if "torch" not in sys.modules:
        return {}
    from torch_loom import _C
    from torch_loom.device.memory.history import memory_snapshot

    if not _C.is_initialized():
        return {}
    for index in range(_C.device_count()):
        if _C.device_has_context(index):
            _C.synchronize(index)
    _C.clear_workspaces()
    return {
        (segment["device"], block["address"]): block
        for segment in memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }


def _record() -> None:
    if "torch" in sys.modules:
        from torch_loom.device.memory import history

        history._record_memory_history("state", "state", "python")

"""How many tests ran that are skipped where there is no GPU."""

from __future__ import annotations

import contextlib
import functools
import re
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torch_loom.tools.pytest_plugin import start

_GPU = re.compile(r"cuda|gpu|accelerator|nvidia|\bdevice", re.IGNORECASE)
_MARK = "_torch_loom_unskipped"


def plugin(config: pytest.Config) -> Unskip | None:
    """Return what counts them; None without an option ``--loom…``."""
    return Unskip() if start.asks(config.option) else None


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Note which tests and classes ``unittest``'s decorators leave in, while files are imported."""
    kept = unittest.skipIf, unittest.skipUnless

    def noting(decide: Callable[..., Any], skips_where: bool) -> Callable[..., Any]:
        @functools.wraps(decide)
        def decorator(condition: object, reason: str) -> Any:
            made = decide(condition, reason)
            if bool(condition) == skips_where or not _GPU.search(str(reason)):
                return made

            def note(test: Any) -> Any:
                test = made(test)
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(test, _MARK, True)
                return test

            return note

        return decorator

    unittest.skipIf, unittest.skipUnless = noting(kept[0], True), noting(kept[1], False)
    try:
        yield
    finally:
        unittest.skipIf, unittest.skipUnless = kept


class Unskip:
    """Counts tests whose condition of skipping names a GPU and did not hold."""

    _KEY = "torch_loom_unskipped"

    def __init__(self) -> None:
        self._count = 0

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if _names_gpu(item):
            item.user_properties.append((self._KEY, True))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # In the process that makes the summary: with xdist, the reports of all workers.
        if report.when == "call" and not report.skipped:
            self._count += (self._KEY, True) in map(tuple, report.user_properties)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._count:
            tests = "1 test" if self._count == 1 else f"{self._count} tests"
            terminalreporter.write_line(f"torch-loom: {tests} ran that would be skipped without a GPU")


def _names_gpu(item: pytest.Item) -> bool:
    for mark in item.iter_markers("skipif"):
        texts = [str(mark.kwargs.get("reason", "")), *(each for each in mark.args if isinstance(each, str))]
        if any(_GPU.search(text) for text in texts):
            return True
    places = (getattr(item, "obj", None), getattr(item, "cls", None))
    return any(getattr(place, _MARK, False) for place in places)

"""How many tests ran that are skipped where there is no GPU."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torch_loom.tools.pytest_plugin import conditions, start

# In a reason, where the condition is not at hand.
_GPU = re.compile(r"cuda|gpu|accelerator|nvidia|\bdevice", re.IGNORECASE)
_MARK = "_torch_loom_unskipped"
# Marks by their identity, as their arguments may have none; each with whether its condition names a GPU.
_conditions: dict[int, tuple[pytest.Mark, bool]] = {}


def plugin(config: pytest.Config) -> Unskip | None:
    """Return what counts them; None without an option ``--loom…``."""
    return Unskip() if start.asks(config.option) else None


def watch_marks() -> None:
    """Note from now on the conditions of ``pytest.mark.skipif``, of which a mark has only the truth."""
    original = pytest.MarkDecorator.with_args
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def with_args(self: pytest.MarkDecorator, *args: object, **kwargs: object) -> pytest.MarkDecorator:
        made = original(self, *args, **kwargs)
        if self.name == "skipif":
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("_pytest."):
                frame = frame.f_back
            names_gpu = conditions.of_decorator(frame, ("skipif",))
            if names_gpu is not None:
                _conditions[id(made.mark)] = made.mark, names_gpu
        return made

    pytest.MarkDecorator.with_args = with_args  # type: ignore[method-assign]


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Note which tests and classes ``unittest``'s decorators leave in, while files are imported."""
    kept = unittest.skipIf, unittest.skipUnless

    def noting(decide: Callable[..., Any], skips_where: bool) -> Callable[..., Any]:
        @functools.wraps(decide)
        def decorator(condition: object, reason: str) -> Any:
            made = decide(condition, reason)
            if bool(condition) == skips_where:
                return made
            names_gpu = conditions.of_decorator(sys._getframe(1), ("skipIf", "skipUnless"))
            if not (_GPU.search(str(reason)) if names_gpu is None else names_gpu):
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
    """Counts tests that a condition which names a GPU would have skipped, and that ran."""

    _KEY = "torch_loom_unskipped"

    def __init__(self) -> None:
        self._count = 0

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if _needs_gpu(item):
            item.user_properties.append((self._KEY, True))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # In the process that makes the summary: with xdist, the reports of all workers.
        if report.when == "call" and not report.skipped:
            self._count += (self._KEY, True) in map(tuple, report.user_properties)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._count:
            tests = "1 test" if self._count == 1 else f"{self._count} tests"
            terminalreporter.write_line(f"torch-loom: {tests} ran that would be skipped without a GPU")


def _needs_gpu(item: pytest.Item) -> bool:
    return (
        any(_mark_needs_gpu(mark) for mark in item.iter_markers("skipif"))
        or any(getattr(item_part, _MARK, False) for item_part in _parts(item))
        or any(conditions.of_function(each) for each in _functions(item))
        or conditions.of_module(getattr(item, "module", None))
    )


def _mark_needs_gpu(mark: pytest.Mark) -> bool:
    _, names_gpu = _conditions.get(id(mark), (mark, None))
    if names_gpu is not None:
        return names_gpu
    texts = [str(mark.kwargs.get("reason", "")), *(each for each in mark.args if isinstance(each, str))]
    return any(_GPU.search(text) for text in texts)


def _parts(item: pytest.Item) -> tuple[object, object]:
    return getattr(item, "obj", None), getattr(item, "cls", None)


def _functions(item: pytest.Item) -> Iterator[object]:
    """Yield what runs for a test: its function, what sets it up, and its fixtures."""
    function, owner = _parts(item)
    yield function
    for name in ("setUp", "setUpClass", "setup_method", "setup_class"):
        yield getattr(owner, name, None)
    names = getattr(item, "fixturenames", ())
    # Where pytest keeps which function a fixture of this test is.
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    for name in names:
        for definition in definitions.get(name, ()):
            yield getattr(definition, "func", None)

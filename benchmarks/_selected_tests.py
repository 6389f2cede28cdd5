"""A plugin of pytest for `benchmarks.suites`: it writes which tests passed, and runs only tests of a list.

It runs in the interpreter of the suite, which need not have what this repository needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("selected tests")
    group.addoption("--passed-to", type=Path, metavar="FILE", help="write the names of tests that pass")
    group.addoption("--only-of", type=Path, metavar="FILE", help="run only the tests that FILE names")


def pytest_configure(config: Any) -> None:
    if (path := config.getoption("--passed-to")) is not None:
        path.write_text("")
        config.pluginmanager.register(_Writer(path))


class _Writer:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        # Parts of a test that unittest calls subtests report for themselves, under the test's name.
        if report.when == "call" and report.outcome == "passed":
            with self._path.open("a", encoding="utf-8") as out:
                out.write(f"{report.nodeid}\n")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    if (path := config.getoption("--only-of")) is None:
        return
    names = set(path.read_text(encoding="utf-8").splitlines())
    chosen = [item for item in items if item.nodeid in names]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = chosen

"""pytest's options ``--loom…`` and the fixture ``loom_time``; installed with the package.

``pytest --loom`` runs tests whose ``cuda`` is torch-loom's, as ``loom run -m pytest`` does. The other options
imply it: see ``pytest --help``, section torch-loom, and docs/ci.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from torch_loom.tools.pytest_plugin import budget, chaos, leaks, start, unskip
from torch_loom.tools.pytest_plugin.device_time import DeviceTime, LoomTime, loom_time

__all__ = [
    "DeviceTime",
    "LoomTime",
    "loom_time",
    "pytest_addoption",
    "pytest_configure",
    "pytest_load_initial_conftests",
    "pytest_make_collect_report",
    "pytest_report_header",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torch-loom", "torch-loom: virtual devices")
    for module in (start, chaos, leaks, budget):
        module.add_options(group)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # The earliest moment at which options are known: no conftest.py has imported torch yet.
    start.begin(early_config)
    if start.asks(early_config.known_args_namespace):
        unskip.watch_marks()


def pytest_configure(config: pytest.Config) -> None:
    if start.asks(config.option):
        unskip.watch_marks()  # a worker of xdist has no such line of options
    for made in (chaos.plugin(config), leaks.plugin(config), budget.plugin(config), unskip.plugin(config)):
        if made is not None:
            config.pluginmanager.register(made, f"torch-loom {type(made).__name__.lower()}")


def pytest_report_header(config: pytest.Config) -> str | None:
    return start.header(config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[Any]:
    # Marks of skipping are made while files are imported.
    with unskip.watched():
        return (yield)

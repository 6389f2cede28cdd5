"""A plugin of pytest for tt-buda's test files: this project's pybuda, hooks that pytest has lost, a share."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

import torch_loom.compat.pybuda  # noqa: F401 (import pybuda finds torch_loom.pybuda)


class OldHooks:
    """Hooks that the files' conftest has, and pytest no longer."""

    def pytest_cmdline_preparse(self, config: Any, args: Any) -> None:
        """Has gone with pytest 8."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(OldHooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--at-most", type=int, default=0, help="run so many tests or fewer, evenly chosen")


class _Anything(ModuleType):
    """A module whose names are modules like it, which do nothing when called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but so many, evenly spaced."""
    most = config.getoption("--at-most")
    if not most or len(items) <= most:
        return
    kept = [items[int(number * len(items) / most)] for number in range(most)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


if importlib.util.find_spec("tensorflow") is None:
    # The files' conftest, which pytest reads before any hook of configuration, sets its threads and seed.
    sys.modules["tensorflow"] = _Anything("tensorflow")
    sys.modules["tensorflow"].__spec__ = ModuleSpec("tensorflow", None)

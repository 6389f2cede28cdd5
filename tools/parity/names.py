"""The names that code written for torch.cuda may use (names.tsv), and what they are on these devices."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torch_loom import config

PACKAGE = "torch.cuda"
_FILE = Path(__file__).parent / "names.tsv"
_MISSING = object()

# What the words in the column `listed` of names.tsv stand for.
LISTS = {
    "000": "torch.rbln's API reference",
    "002": "tables of torch.cuda's names",
    "003": "torch.cuda's API reference",
    "all": "`__all__` of torch.cuda and its modules",
    "private": "names that other libraries use though no list has them",
}


@dataclass(frozen=True)
class Name:
    """One line of names.tsv.

    Attributes:
        module: the module in torch's spelling, such as ``torch.cuda.memory``.
        name: the name in it; with a dot, a method of a class.
        kind: class, function, method, module, object, constant or typevar.
        listed: where it comes from, keys of :data:`LISTS`.
    """

    module: str
    name: str
    kind: str
    listed: tuple[str, ...]

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def here(self) -> str:
        """The same name in the device's module."""
        return f"torch.{config.device_name()}{self.full.removeprefix(PACKAGE)}"


@cache
def names() -> tuple[Name, ...]:
    """Returns all names, sorted by module."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        found = [Name(row["module"], row["name"], row["kind"], tuple(row["listed"].split())) for row in rows]
    return tuple(sorted(found, key=lambda name: (name.module, name.name.lower(), name.name)))


def found(name: Name) -> Any:
    """Returns what the name is here.

    Raises:
        AttributeError: there is no such name.
    """
    value: Any = torch.get_device_module(config.device_name())
    for part in name.full.removeprefix(f"{PACKAGE}.").split("."):
        value = getattr(value, part)
    return value


def is_found(name: Name) -> bool:
    """Returns whether the name exists here."""
    try:
        found(name)
    except AttributeError:
        return False
    return True


def _has_identity(value: object) -> bool:
    return not isinstance(value, (bool, int, float, str, tuple, ModuleType))


def bindings(value: object) -> list[str]:
    """Returns every place that holds this very object, such as ``torch.loom.seed``."""
    return _places().get(id(value), (value, []))[1] if _has_identity(value) else []


@cache
def _places() -> dict[int, tuple[object, list[str]]]:
    # With the object itself: what a module makes anew at each question must not give its identity away.
    top = torch.get_device_module(config.device_name())
    name = f"torch.{config.device_name()}"
    modules = {name: top}
    # Some are imported when they are first asked for: getattr, not vars.
    for module in top.SUBMODULES:
        modules[f"{name}.{module}"] = getattr(top, module)
    places: dict[int, tuple[object, list[str]]] = {}
    for prefix, module in modules.items():
        for member in sorted({*vars(module), *getattr(module, "__all__", ())}):
            value = getattr(module, member, _MISSING)
            if value is not _MISSING and _has_identity(value):
                places.setdefault(id(value), (value, []))[1].append(f"{prefix}.{member}")
    return places

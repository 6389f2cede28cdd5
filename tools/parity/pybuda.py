"""`docs/pybuda_parity.md`: each public name of PyBuda's, and the test that uses it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.blocks import markdown_table
from tools.parity.exercised import MarkedTest, Reader

FILE = "docs/pybuda_parity.md"
MAX_TESTS = 2
DECLINED = {
    "pybuda.TTCluster": "does not work in the original either",
    "pybuda.CompiledGraphState": "what torch_loom.compile returns has plan, netlist and report",
}
"""Names that are not here, and what to use instead."""
LIMITED: dict[str, str] = {}
"""Names that do less than documented."""
WORDS = {
    "Device": {"TTDevice", "CPUDevice", "manual"},
    "Module": {"Echo", "Projection", "PyTorchModule"},
    "PyBudaModule": {"Echo", "Projection"},
    "GPUDevice": {"GPUDevice"},
}
"""Words by which a test has an object of a class, beside the class's name."""
_SPLIT = re.compile(r", (?![^(\[]*[)\]])")


@dataclass(frozen=True)
class Name:
    """A name, its kind (function, method, member and so on) and its documented parameters."""

    full: str
    kind: str
    parameters: tuple[str, ...]

    @property
    def last(self) -> str:
        return self.full.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The class of a method or member."""
        return self.full.split(".")[-2]


def names() -> list[Name]:
    """Returns the names of pybuda_names.tsv."""
    lines = Path(__file__).with_name("pybuda_names.tsv").read_text(encoding="utf-8").splitlines()
    found = [line.split("\t") for line in lines]
    return [Name(full, kind, tuple(filter(None, _SPLIT.split(text)))) for full, kind, text in found]


def value(name: Name) -> Any:
    """Returns the object of a name.

    Raises:
        AttributeError: there is none.
    """
    from torch_loom import pybuda

    found: Any = pybuda
    for part in name.full.split(".")[1:]:
        if name.kind == "property" and part == name.last:
            return getattr(next(iter(found)), part)
        found = getattr(found, part)
    return found


def difference(name: Name) -> str | None:
    """Returns how the call differs from its documentation, or None; more parameters may follow."""
    if name.kind not in ("function", "method", "class"):
        return None
    ours = [p for p in inspect.signature(value(name)).parameters.values() if p.name != "self"]
    keyword_only = False
    place = 0
    for text in name.parameters:
        if text == "*":
            keyword_only = True
            continue
        wanted, _, default = text.partition("=")
        if place == len(ours) or ours[place].name != wanted.lstrip("*"):
            return f"parameter {wanted} is not at place {place}"
        if keyword_only and ours[place].kind is not inspect.Parameter.KEYWORD_ONLY:
            return f"{wanted} can be passed by place"
        if default and _plain(ours[place].default) != default.strip("'\""):
            return f"{wanted} is {_plain(ours[place].default)} by default, not {default}"
        place += 1
    return None


def _plain(default: Any) -> str:
    if default == () or default == []:
        return "[]" if default == [] else "()"
    return str(default)


def tests(root: Path) -> list[MarkedTest]:
    """Returns the tests of the facade, with the words that each uses."""
    return list(_tests(root / "tests" / "pybuda"))


def _tests(folder: Path) -> Iterator[MarkedTest]:
    for path in sorted(folder.glob("test_*.py")):
        reader = Reader(f"pybuda/{path.name}", folder.parent)
        for node in reader.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                words, asserts = reader.used(node)
                if asserts:
                    yield MarkedTest(f"pybuda/{path.name}", node.name, (), frozenset(words), asserts)


# How long a test takes says nothing of what it is about.
_MARKS = {"pytest", "mark", "long", "slow"}


def tests_of(name: Name, found: Sequence[MarkedTest]) -> list[MarkedTest]:
    """Returns the tests that use a name; of a method, those that have an object of its class too."""
    if name.kind in ("member", "property"):
        return [test for test in found if test.function == "test_documented_members_exist"]
    using = [test for test in found if name.last in test.words and "random" not in test.path]
    if name.kind == "method":
        owners = {name.owner} | WORDS.get(name.owner, set())
        using = [test for test in using if owners & test.words]
    # Read first the test that is about the fewest things.
    return sorted(using, key=lambda test: len(test.words - _MARKS))


def problems(root: Path) -> list[str]:
    """Returns names that are missing, called otherwise, or without a test."""
    said, found = [], tests(root)
    for name in names():
        try:
            value(name)
        except AttributeError:
            if name.full not in DECLINED:
                said.append(f"{name.full} does not exist")
            continue
        if name.full in DECLINED:
            said.append(f"DECLINED names {name.full}, which exists")
        if (differs := difference(name)) is not None:
            said.append(f"{name.full}: {differs}")
        if not tests_of(name, found):
            said.append(f"no test uses {name.full}")
    return said


def document(root: Path) -> str:
    """Returns the text of docs/pybuda_parity.md for the checkout in `root`."""
    found = tests(root)
    lines = []
    for name in names():
        links = [
            f"[{test.path}::{test.function}](../tests/{test.path})"
            for test in tests_of(name, found)[:MAX_TESTS]
        ]
        state = f"declined: {DECLINED[name.full]}" if name.full in DECLINED else "implemented"
        if name.full in LIMITED:
            state = f"limited: {LIMITED[name.full]}"
        lines.append([f"`{name.full}`", state, "<br>".join(links) or "-"])
    done = len(lines) - len(DECLINED) - len(LIMITED)
    return (
        "# PyBuda, name by name\n\n"
        "Written by `make docs`: names of PyBuda's documentation, then those that its package makes public "
        "beside them. Names, order and defaults of documented parameters are checked. A test counts where it "
        "uses the name and asserts; at most two are named. [pipelines.md](pipelines.md) says where behaviour "
        "differs. The C++ runtime API is declined: images run through `loom run-image`.\n\n"
        f"{done} of {len(lines)} implemented, {len(LIMITED)} limited, {len(DECLINED)} declined.\n\n"
        + markdown_table(["name", "state", "used by"], lines)
        + "\n"
    )

"""Seed 004, PyBuda's documentation: each promise, in our words, has a test or a reason.

seed_004.tsv: ``entry/number``, the promise, and ``path::test``, ``declined: reason`` or ``open: reason``.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tools.parity import pybuda

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent


def rows() -> list[list[str]]:
    return [line.split("\t") for line in (FOLDER / "seed_004.tsv").read_text(encoding="utf-8").splitlines()]


def functions(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_promise_has_a_test_or_a_reason() -> None:
    paths = {answer.split("::")[0] for _, _, answer in rows() if "::" in answer}
    known = {path: functions(path) for path in paths}
    gaps = []
    for key, _, answer in rows():
        kind, _, reason = answer.partition(": ")
        path, _, function = answer.partition("::")
        if not (kind in ("declined", "open") and reason) and function not in known.get(path, set()):
            gaps.append(f"{key}: {answer}")
    assert gaps == []


def test_every_documented_callable_has_a_promise() -> None:
    entries = {key.rpartition("/")[0] for key, _, _ in rows()}
    documented = {
        name.full.removeprefix("pybuda.").removeprefix("op.").removeprefix("nn.")
        for name in pybuda.names()
        if name.kind in ("function", "class", "enum")
    }
    assert sorted(documented - entries) == []


def test_promises_are_numbered() -> None:
    numbers: dict[str, int] = {}
    for key, _, _ in rows():
        entry, _, number = key.rpartition("/")
        numbers[entry] = numbers.get(entry, 0) + 1
        assert int(number) == numbers[entry], key


def test_no_promise_is_dropped() -> None:
    """Changing these counts is a decision; none is open."""
    answers = [answer for _, _, answer in rows()]
    assert len(answers) == 175
    assert sum(answer.startswith("declined: ") for answer in answers) == 2
    assert sum(answer.startswith("open: ") for answer in answers) == 0

"""What the seed documents say, in our words and one line a sentence, and which test is about which line.

``seed_003.txt`` and ``seed_000.txt`` hold the sentences under keys, ``entry/number``. Seed 002 is tables of
names: its keys are the names, from the list of names that docs/api_parity.md is made from.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tools.parity.names import PACKAGE, names

FOLDER = Path(__file__).parent


def sentences(seed: int) -> dict[str, str]:
    """Return the keys of a seed document with what is said there."""
    if seed == 2:
        return {
            name.full.removeprefix(f"{PACKAGE}."): "a name of torch.cuda"
            for name in names()
            if "002" in name.listed
        }
    lines = (FOLDER / f"seed_{seed:03}.txt").read_text(encoding="utf-8").splitlines()
    found = dict(line.split(": ", 1) for line in lines)
    assert len(found) == len(lines), "a key stands twice"
    return found


def marks() -> dict[int, dict[str, list[str]]]:
    """Return what the markers ``seed(number, *keys)`` say: number -> key -> tests."""
    found: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(FOLDER.parent.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.seed":
                    number, *keys = (ast.literal_eval(argument) for argument in mark.args)
                    for key in keys:
                        found[number][key].append(f"{path.name}::{node.name}")
    return found

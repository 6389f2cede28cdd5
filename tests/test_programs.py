"""Programs that tests hold as text are linted as files are."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# What `fork_python` and `fork_loom` give a program.
GIVEN = ("torch", "raises")
RUNNERS = {"run_python", "warm_python", "fork_python", "fork_loom"}
# Rules that only a whole program can be held to; importing torch_loom registers the device.
OF_WHOLE = {"F401", "F821"}
RULES = "E4,E7,E9,F,B,PLE"


def programs(source: str) -> Iterator[tuple[int, str, bool]]:
    """Return each program of several lines in a file: line, text, and whether it is run as it stands."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    others: set[int] = set()  # documentation, and what stands between the braces of f-strings
    run: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
            others.add(id(node.body[0].value))
        elif isinstance(node, ast.JoinedStr):
            others.update(id(part) for part in node.values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNNERS:
            run.update(id(argument) for argument in node.args[:1])
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) in others or node.value.count("\n") < 2:
            continue
        text = textwrap.dedent(node.value)
        try:
            body = ast.parse(text).body
        except SyntaxError:
            continue
        if any(isinstance(each, (ast.Import, ast.ImportFrom)) for each in body):
            yield node.lineno, text, id(node) in run


def findings(folder: Path) -> list[str]:
    """Return what the linter has to say of the programs in a folder, in the words `file:line: rule text`."""
    listed = ", ".join(f'"{name}"' for name in GIVEN)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", RULES, "--no-cache"]
    # Programs import torch again where they say which, and import modules for what importing does.
    command += [
        "--ignore",
        "F811,E401,E402,E70,E731,B007,B018,B023",
        "--config",
        f"builtins=[{listed}]",
        "--output-format",
        "json",
    ]
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    found = []
    for each in json.loads(done.stdout):
        name, _, line = Path(each["filename"]).stem.rpartition("@")
        is_part = line.endswith("+")
        line = line.rstrip("+")
        if each["code"] in OF_WHOLE and (is_part or "`torch" in each["message"]):
            continue
        row = int(line) + each["location"]["row"] - 1
        name_of = each["message"].split("`")[1] if "`" in each["message"] else ""
        if each["code"] == "F821" and re.search(
            rf"\bdel\b.*\b{name_of}\b", Path(each["filename"]).read_text()
        ):
            continue  # in a function that ran before the name was deleted
        found.append(f"{name.replace('=', '/')}.py:{row}: {each['code']} {each['message']}")
    return sorted(found)


def write_all(folder: Path) -> int:
    """Write the programs of all tests as files; return how many there are."""
    count = 0
    for path in sorted(TESTS.rglob("*.py")):
        name = "=".join(path.relative_to(TESTS).with_suffix("").parts)
        for line, text, is_whole in programs(path.read_text(encoding="utf-8")):
            (folder / f"{name}@{line}{'' if is_whole else '+'}.py").write_text(text, encoding="utf-8")
            count += 1
    return count


def test_programs_are_linted(tmp_path: Path) -> None:
    assert write_all(tmp_path) > 100
    assert findings(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [("import os\nimport torch\ntorch.ones(undefined)\n", "F821"), ("import os\n\nx = 1\n", "F401")],
)
def test_faults_are_found(tmp_path: Path, text: str, said: str) -> None:
    ((_, program, _),) = programs(f'"""Module."""\nrun_python("""{text}""")\n')
    (tmp_path / "some=test@7.py").write_text(program, encoding="utf-8")
    assert any(each.startswith("some/test.py:") and said in each for each in findings(tmp_path))

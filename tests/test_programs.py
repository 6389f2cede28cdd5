"""Programs that tests run are files, which the linter reads as it reads all others."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
RUNNERS = {"run_python", "warm_python", "fork_python", "fork_loom", "fork_cuda", "run_without_torch"}
# Files whose texts no test runs as they stand, or which a command under test must find elsewhere.
TEXTS = {
    "benchmarks/test_build.py": "a checkout's setup.py",
    "benchmarks/test_suites_benchmark.py": "the test suite of another project",
    "conformance/test_suites.py": "test suites of other projects",
    "test_declared_patches.py": "replacements that are judged",
    "test_layers.py": "imports that are judged",
    "tools/test_api_parity.py": "tests that are judged",
    "tools/test_ci_docs.py": "blocks of docs/recipes.md",
    "tools/test_compile_command.py": "models that cannot be compiled, with the line in a template",
    "tools/test_reports.py": "tests that are judged",
}


def programs(source: str) -> Iterator[int]:
    """Yield the lines at which a file has a program of several lines as a text."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documentation: set[int] = set()
    run: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
            documentation.add(id(node.body[0].value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNNERS:
            run.update(id(part) for argument in node.args[:1] for part in ast.walk(argument))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        num_lines = len(node.value.strip().splitlines())
        if id(node) in documentation or num_lines < 2:
            continue
        if id(node) in run or (num_lines > 2 and _imports(node.value)):
            yield node.lineno


def _imports(text: str) -> bool:
    try:
        body = ast.parse(textwrap.dedent(text)).body
    except SyntaxError:
        return False
    return any(isinstance(each, (ast.Import, ast.ImportFrom)) for each in body)


@pytest.mark.long
def test_programs_are_files() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in sorted(TESTS.rglob("*.py"))
        if (lines := list(programs(path.read_text(encoding="utf-8"))))
    }
    assert {name: lines for name, lines in found.items() if name not in TEXTS} == {}
    assert TEXTS.keys() == found.keys(), "files that have no such text any more"


def test_every_program_is_run() -> None:
    files = [path for path in TESTS.rglob("*.py") if "programs" not in path.parts]
    tests = "".join(path.read_text(encoding="utf-8") for path in files)
    for path in TESTS.glob("*/programs/**/*.py"):
        imported = f"{path.parent.name}.{path.stem} import"
        others = (other.read_text(encoding="utf-8") for other in path.parent.glob("*.py"))
        is_run = f'{path.name}"' in tests or f'"{path.stem}"' in tests
        assert is_run or any(imported in text or f"import {path.stem}" in text for text in others), path


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('fork_loom("""\nx = 1\ny = 2\n""")', [1]),
        ('fork_loom(HEAD + """\nx = 1\ny = 2\n""", env)', [1]),
        ('x = 1\nPROGRAM = """\nimport os\n\nos.getpid()\n"""', [2]),
        ('"""import os\n\nos.getpid()\n"""', []),
        ('fork_loom("import torch; torch.ones(1)")', []),
        ("fork_loom(PROGRAMS / 'x.py')", []),
    ],
)
def test_texts_are_found(source: str, lines: list[int]) -> None:
    assert list(programs(source)) == lines

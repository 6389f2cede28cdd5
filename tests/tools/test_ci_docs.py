"""What docs/ci.md, docs/quickstart.md and docs/recipes.md tell to run, run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

ROOT = Path(__file__).parents[2]


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


RECIPES = [*re.split(r"(?m)^## ", text_of("ci.md"))[1:], text_of("quickstart.md").removeprefix("# ")]
BLOCKS = dict(re.findall(r"(?ms)^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", text_of("recipes.md")))
FILE = re.compile(r"^`([\w./-]+\.py)`[^\n]*:\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*?)\n(.*?)(?=^\$ |\Z)", re.DOTALL | re.MULTILINE)


def run(command: str, folder: Path) -> str:
    program, *words = command.split()
    module = {"loom": "torch_loom.tools.cli", "pytest": "pytest"}[program]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_LOOM_")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    quiet = ["-p", "no:cacheprovider"] if "pytest" in command else []
    line = [sys.executable, "-m", module, *words, *quiet]
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=180)
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=[recipe.partition("\n")[0] for recipe in RECIPES])
def test_recipe(recipe: str, tmp_path: Path) -> None:
    files = FILE.findall(recipe)
    consoles = [command for text in CONSOLE.findall(recipe) for command in COMMAND.findall(text)]
    assert files
    assert consoles
    for name, text in files:
        (tmp_path / name).write_text(text)
    for command, expected in consoles:
        printed = run(command, tmp_path)
        at = 0
        for line in expected.splitlines():
            if line == "…":
                continue
            assert line.strip() in printed[at:], f"{line!r} is missing in\n{printed}"
            at = printed.index(line.strip(), at)


@pytest.mark.slow
@pytest.mark.parametrize("title", BLOCKS)
def test_a_block_runs_alone(title: str, tmp_path: Path, fork_loom: PythonRunner) -> None:
    fork_loom(f"import os\nimport torch_loom\nos.chdir({str(tmp_path)!r})\n" + BLOCKS[title])


def test_every_block_is_found() -> None:
    assert len(BLOCKS) == text_of("recipes.md").count("```python\n") > 7

"""The action for GitHub's runners, step by step, and the project of examples/ci."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / ".github" / "action.yml").read_text())
EXAMPLE = ROOT / "examples" / "ci"
EXPRESSION = re.compile(r"\$\{\{ (\w+)\.(\w+) \}\}")


def run_action(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run the steps as a runner does, until one fails; the last step's process."""
    assert given.keys() <= ACTION["inputs"].keys()
    inputs = {name: given.get(name, each["default"]) for name, each in ACTION["inputs"].items()}
    known = {"inputs": inputs, "github": {"action_path": str(ROOT / ".github")}}
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert not EXPRESSION.search(step["run"]), "what a user gives is text of a program here"
        own = {
            name: EXPRESSION.sub(lambda found: known[found[1]][found[2]], value)
            for name, value in step["env"].items()
        }
        done = in_project(
            folder, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"], env=own
        )
        if done.returncode != 0:
            break
    return done


def in_project(
    folder: Path, *line: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("TORCH_LOOM_", "PYTEST_"))
    }
    paths = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), clean["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    full = {**clean, **paths, **(env or {})}
    return subprocess.run(line, cwd=folder, env=full, capture_output=True, text=True, timeout=110)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project"))


def test_what_stands_in_the_root_is_the_action() -> None:
    assert (ROOT / "action.yml").resolve() == ROOT / ".github" / "action.yml"
    assert set(ACTION["inputs"]) >= {"chip", "devices", "memory", "sanitize", "chaos", "command"}
    assert all("uses" not in step for step in ACTION["runs"]["steps"])


@pytest.mark.slow
def test_the_steps_find_what_is_planted(project: Path) -> None:
    done = run_action(
        project, memory="1GiB", sanitize="true", command="python -m pytest -q -p no:cacheprovider"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for words in (
        "CUDASanitizerErrors: detected",
        "torch.OutOfMemoryError: CUDA out of memory",
        "Expected all tensors to be on the same device",
        "3 failed",
    ):
        assert words in done.stdout


@pytest.mark.slow
def test_the_steps_pass_what_is_repaired(project: Path) -> None:
    command = "python -m pytest -q -p no:cacheprovider -o pythonpath=repaired"
    done = run_action(project, memory="1GiB", devices="2", chip="a100", chaos="3", command=command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.slow
def test_the_tests_are_skipped_without_a_gpu(project: Path) -> None:
    done = in_project(project, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert (done.returncode, "3 skipped" in done.stdout) == (0, True), done.stdout


@pytest.mark.slow
def test_the_project_says_it_to_pytest(project: Path) -> None:
    chosen = (
        "--loom-sanitize",
        "--loom-memory",
        "1GiB",
        "-o",
        "pythonpath=repaired",
        "-p",
        "no:cacheprovider",
    )
    done = in_project(project, "python", "-m", "pytest", "-q", *chosen)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.slow
def test_a_step_that_fails_is_the_last(project: Path) -> None:
    done = run_action(project, chip="h1000")
    assert done.returncode != 0
    assert "There is no chip 'h1000'" in done.stdout + done.stderr

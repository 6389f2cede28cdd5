"""The action for GitHub's runners, step by step, and the project of examples/ci."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / ".github" / "action.yml").read_text())
EXAMPLE = ROOT / "examples" / "ci"
EXPRESSION = re.compile(r"\$\{\{ (\w+)\.(\w+) \}\}")


def run_action(
    folder: Path, *, action_path: Path = ROOT / ".github", path: Path | None = None, **given: str
) -> subprocess.CompletedProcess[str]:
    """Run the steps as a runner does, until one fails; the last step's process.

    Args:
        folder: of the project.
        action_path: where the runner has put the action.
        path: a folder whose commands come before others.
        given: inputs of the action.
    """
    assert given.keys() <= ACTION["inputs"].keys()
    inputs = {name: given.get(name, each["default"]) for name, each in ACTION["inputs"].items()}
    known = {"inputs": inputs, "github": {"action_path": str(action_path)}}
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert not EXPRESSION.search(step["run"]), "what a user gives is text of a program here"
        own = {
            name: EXPRESSION.sub(lambda found: known[found[1]][found[2]], value)
            for name, value in step["env"].items()
        }
        if path is not None:
            own["PATH"] = os.pathsep.join([str(path), os.environ["PATH"]])
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


# Says what it was called with, and has those modules that it is told to have.
STUB = """#!/bin/bash
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
    "-c import "*) [[ " $MODULES " == *" ${2#import } "* ]] ;;
esac
"""


@pytest.mark.parametrize("action_path", [ROOT, ROOT / ".github"], ids=["root", "folder"])
@pytest.mark.parametrize("modules", ["", "torch", "torch torch_loom"], ids=["none", "torch", "both"])
def test_the_first_step_installs_what_is_missing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action_path: Path, modules: str
) -> None:
    stub, calls = tmp_path / "bin" / "python", tmp_path / "calls"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("MODULES", modules)
    done = run_action(project, action_path=action_path, path=stub.parent, torch="2.14.1")
    assert done.returncode == 0, done.stdout + done.stderr
    installs = [line for line in calls.read_text().splitlines() if line.startswith("-m pip")]
    torch = ["-m pip install torch==2.14.1 --index-url https://download.pytorch.org/whl/cpu"]
    source = ROOT if action_path == ROOT else ROOT / ".github" / ".."
    build = ["-m pip install setuptools>=77 ninja", f"-m pip install --no-build-isolation {source}"]
    assert (source / "setup.py").is_file()
    assert installs == {"": [*torch, *build], "torch": build}.get(modules, [])


def test_an_installation_that_fails_ends_the_action(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text('#!/bin/bash\necho "$*"\nexit 1\n')
    stub.chmod(0o755)
    done = run_action(project, path=stub.parent)
    assert done.returncode == 1
    assert "run --devices" not in done.stdout


def test_other_ci_systems_run_what_exists(pytestconfig: pytest.Config) -> None:
    """The examples parse, and each option of theirs is one of pytest's here."""
    gitlab = yaml.safe_load((EXAMPLE / ".gitlab-ci.yml").read_text())
    buildkite = yaml.safe_load((EXAMPLE / ".buildkite" / "pipeline.yml").read_text())
    tox = configparser.ConfigParser()
    tox.read(EXAMPLE / "tox.ini")
    (environment,) = tox["tox"]["envlist"].split()
    nox = [
        " ".join(str(word.value) for word in node.args if isinstance(word, ast.Constant))
        for node in ast.walk(ast.parse((EXAMPLE / "noxfile.py").read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run"
    ]
    commands = {
        "gitlab": gitlab["cuda-without-a-gpu"]["script"],
        "buildkite": [line for step in buildkite["steps"] for line in step["command"]],
        "tox": [tox[f"testenv:{environment}"]["commands"]],
        "nox": nox,
    }
    for system, lines in commands.items():
        (tests,) = [line for line in lines if line.startswith("pytest ")]
        options = re.findall(r"--(loom[a-z-]*)", tests)
        assert options, system
        for option in options:
            assert hasattr(pytestconfig.option, option.replace("-", "_")), (system, option)
    assert "torch-loom" in tox[f"testenv:{environment}"]["deps"]


def test_the_example_of_the_action_gives_what_it_takes() -> None:
    text = (EXAMPLE / "README.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    steps: list[dict[str, Any]] = yaml.safe_load(block)["jobs"]["cuda-without-a-gpu"]["steps"]
    (given,) = [step["with"] for step in steps if "torch-loom" in step.get("uses", "")]
    assert given.keys() <= ACTION["inputs"].keys()


@pytest.mark.parametrize("file", ["README.md", "docs/quickstart.md", "docs/ci.md", ".github/action.yml"])
def test_what_the_build_needs_is_installed_before_it(file: str) -> None:
    """torch brings setuptools, and not ninja."""
    before, found, _ = (ROOT / file).read_text(encoding="utf-8").partition("--no-build-isolation")
    assert found
    assert re.search(r"pip install [^\n]*\bninja\b", before)


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

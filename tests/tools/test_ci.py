"""What CI and the release run: which share, which Pythons, which versions of PyTorch."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from torch_loom import torch_version

ROOT = Path(__file__).parents[2]
WHOLE = "tests/cuda/test_build_for_cuda.py"


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def told_by(*arguments: str) -> str:
    # Not as a part of the make that may have started this.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    line = ["make", "--silent", *arguments]
    return subprocess.run(
        line, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_ci_runs_another_quarter_at_each_commit() -> None:
    """Of the sample on PyTorch's build for CUDA; what only that build can show is run whole."""
    assert 'SHARE="$(make --silent commit-share)"' in text_of(".ci/run")
    assert re.fullmatch(r"[0-3]/4\n", told_by("commit-share"))
    told = told_by("--dry-run", "check-torch", "SHARE=1/4")
    assert f'-m "not conformance" {WHOLE}\n' in told
    assert f"--share 1/4 --ignore={WHOLE}" in told


def make_python(path: Path, status: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)


def test_pythons_are_those_that_answer(tmp_path: Path) -> None:
    """pyenv puts names before others that fail unless their version is chosen."""
    shims, versions = tmp_path / "shims", tmp_path / "root" / "versions"
    for minor, status in ((10, 127), (11, 0), (13, 127)):
        make_python(shims / f"python3.{minor}", status)
    for version, status in (("3.10.13", 0), ("3.12.1", 0), ("3.13.0", 1)):
        make_python(versions / version / "bin" / f"python{version.rpartition('.')[0]}", status)
    environment = {"PATH": f"{shims}:/bin", "PYENV_ROOT": str(tmp_path / "root")}
    line = ["/bin/sh", str(ROOT / ".ci" / "pythons")]
    found = subprocess.run(line, env=environment, capture_output=True, text=True, check=True).stdout
    # Those of the system, which stand in /bin, may be there, too.
    assert [
        each for each in found.split() if not each.startswith(("python3.12", "python3.13", "python3.14"))
    ] == [
        str(versions / "3.10.13" / "bin" / "python3.10"),
        "python3.11",
        *([str(versions / "3.12.1" / "bin" / "python3.12")] if "3.12.1" in found else []),
    ]
    assert "3.13.0" not in found


@pytest.mark.parametrize("file", ["Makefile", ".github/workflows/wheels.yml"])
def test_a_release_is_for_every_version_that_pip_accepts(file: str) -> None:
    found = re.search(r"^\s*TORCHES:?=?\s*:?=?\s*(.+)$", text_of(file), re.MULTILINE)
    assert found is not None
    major, first = torch_version.OLDEST
    _, last = torch_version.NEWEST
    minors = [torch_version.minor_of(version) for version in found[1].split()]
    assert minors == [(major, minor) for minor in range(first, last + 1)]


def test_wheels_are_checked_where_they_are_built() -> None:
    workflow: dict[str, Any] = yaml.safe_load(text_of(".github/workflows/wheels.yml"))
    for name in ("sources", "wheels"):
        steps = workflow["jobs"][name]["steps"]
        said = [step.get("run", "") for step in steps]
        (check,) = [number for number, text in enumerate(said) if "tools/release_check.py" in text]
        assert "loom doctor" in said[check] or 'loom" doctor' in said[check]
        assert "upload-artifact" in steps[check + 1]["uses"]


def test_what_a_release_says_of_itself() -> None:
    version = re.search(r'^version = "(.+)"$', text_of("pyproject.toml"), re.MULTILINE)
    assert version is not None
    assert re.search(rf"^## {re.escape(version[1])}\b", text_of("CHANGELOG.md"), re.MULTILINE)
    assert "CHANGELOG.md" in text_of("MANIFEST.in")
    # Wheels are built of the sources that are released.
    told = told_by("--dry-run", "wheel-of-torch")
    assert told.index("tar -x -z -f dist/torch_loom-*.tar.gz") < told.index("pip wheel")

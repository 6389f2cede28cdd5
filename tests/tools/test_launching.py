"""`loom run` and `pytest --loom` beside an extension that does not fit: they say so, and start nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import torch_loom
from torch_loom._register import fitness
from torch_loom.errors import ExtensionError, VersionMismatchError
from torch_loom.tools import launch

PACKAGE = Path(torch_loom.__file__).parent
EXTENSION = f"_C{EXTENSION_SUFFIXES[0]}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the package, whose extension has lost its end."""
    folder = tmp_path / "site" / "torch_loom"
    folder.mkdir(parents=True)
    for part in PACKAGE.iterdir():
        if not part.name.startswith(("_C.", "__pycache__")):
            (folder / part.name).symlink_to(part)
    (folder / EXTENSION).write_bytes((PACKAGE / EXTENSION).read_bytes()[:1000])
    return folder.parent


def python(site: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit status, and what was printed."""
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("TORCH_LOOM_", "PYTEST_"))
    }
    environment = {**kept, "PYTHONPATH": str(site), "COLUMNS": "1000"}
    line = [sys.executable, *arguments]
    done = subprocess.run(
        line, cwd=site.parent, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("-m", "torch_loom.tools.cli", "run", "-c", "print('started')"),
        ("-m", "pytest", "-p", "no:cacheprovider", "--loom", "test_nothing.py"),
    ],
    ids=["loom-run", "pytest"],
)
def test_a_damaged_extension_is_said_before_anything_starts(site: Path, command: tuple[str, ...]) -> None:
    (site.parent / "test_nothing.py").write_text("def test_nothing():\n    print('started')\n")
    status, printed = python(site, *command)
    assert status not in (0, 1) or "run" in command
    assert status != 0
    assert "is damaged: it is not the file that was built (1,000 bytes, of " in printed
    assert "pip install --force-reinstall" in printed
    assert "started" not in printed
    assert "Traceback" not in printed


def test_another_torch_is_said_before_the_environment_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitness, "version_in", lambda folder: "2.14.9")
    monkeypatch.setattr(launch.config, "export", lambda values: pytest.fail("a setting was exported"))
    with pytest.raises(VersionMismatchError, match=r"but torch 2\.14\.9 is running"):
        launch.prepare("cuda", {})


def test_no_torch_is_left_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitness, "find_spec", lambda name: None)
    monkeypatch.setattr(fitness, "_check", lambda version, folder: pytest.fail("there is nothing to check"))
    fitness.check_installed()


@pytest.mark.parametrize("text", ["", "__version__ = 2\n", "\0\xff"])
def test_a_torch_without_a_version(tmp_path: Path, text: str) -> None:
    assert fitness.version_in(tmp_path) is None
    (tmp_path / "version.py").write_text(text, encoding="latin-1")
    assert fitness.version_in(tmp_path) is None


def test_the_installed_torch_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    found = []
    monkeypatch.setattr(fitness, "_check", lambda version, folder: found.append((version, folder)))
    fitness.check_installed()
    assert found == [(str(torch.__version__), Path(torch.__file__).parent)]


def test_a_missing_extension_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitness, "EXTENSION_SUFFIXES", [".none"])
    with pytest.raises(ExtensionError, match=r"compiled extension|no extension"):
        launch.prepare("cuda", {})

"""The benchmark of builds: what it copies, how it builds, and its verdict."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import build

SETUP = """
import os, pathlib
assert os.environ["CCACHE_DISABLE"] == "1" and os.environ["MAX_JOBS"] == "1"
assert pathlib.Path("new.cpp").exists() and not pathlib.Path("old.o").exists()
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / ".gitignore").write_text("*.o\n")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "setup.py"], cwd=tmp_path, check=True)
    (tmp_path / "new.cpp").touch()
    (tmp_path / "old.o").touch()
    return tmp_path


def test_a_copy_is_built_from_nothing(checkout: Path) -> None:
    assert all(seconds > 0 for seconds in build.build_seconds([checkout, checkout]))
    assert not (checkout / "build").exists()


def test_a_build_that_fails_is_told(checkout: Path) -> None:
    (checkout / "setup.py").write_text("raise SystemExit('no compiler')")
    with pytest.raises(SystemExit, match="no compiler"):
        build.build_seconds([checkout])


def test_compilers_are_not_those_of_ccache() -> None:
    assert build.without_ccache("/usr/lib/ccache:/usr/bin:/opt/ccache/bin:/bin") == "/usr/bin:/bin"


@pytest.mark.parametrize(("seconds", "status"), [(50.0, 0), (51.0, 1)])
def test_check(monkeypatch: pytest.MonkeyPatch, seconds: float, status: int) -> None:
    times = {build.ROOT: seconds, Path("other"): 100.0}
    monkeypatch.setattr(build, "build_seconds", lambda checkouts: [times[one] for one in checkouts])
    monkeypatch.setattr(build, "name_of", lambda _: "0123456")
    assert build.main(["--reference", "other", "--check"]) == status
    assert build.main(["--reference", "other"]) == 0
    assert "of 0123456" in build.docs_body(50.0, 100.0, "0123456")

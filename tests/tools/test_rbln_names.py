"""The list of torch-rbln's names: read out of a package, and compared with the last one."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from tools.parity import rbln
from tools.parity.rbln import Name

PROGRAMS = Path(__file__).parent / "programs" / "rbln_names"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "torch_rbln"
    (package / "_internal").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    shutil.copy(PROGRAMS / "memory.py", package)
    shutil.copy(PROGRAMS / "memory.py", package / "_internal")
    (tmp_path / "torch_rbln-0.13.0.dist-info").mkdir()
    return tmp_path


def test_names_are_read_without_importing(folder: Path) -> None:
    version, names = rbln.read(folder)
    assert version == "0.13.0"
    assert {(name.module, name.name, name.kind, name.parameters) for name in names} == {
        ("torch_rbln.memory", "offload", "function", ""),
        ("torch_rbln.memory", "empty_cache", "function", "device=None, *, force=SOME, **rest"),
        ("torch_rbln.memory", "Pool", "class", ""),
        ("torch_rbln.memory", "Pool.take", "method", "size, device=None"),
        ("torch_rbln.memory", "Pool.sizes", "method", "unit='MiB'"),
        ("torch_rbln.memory", "Pool.free", "property", ""),
        ("torch_rbln.memory", "profile", "function", ""),
        ("torch_rbln.memory", "elsewhere", "deferred", ""),
    }


def test_a_wheel_has_the_names_of_its_folder(folder: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "torch_rbln-0.13.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for path in (folder / "torch_rbln").rglob("*.py"):
            file.write(path, path.relative_to(folder))
    assert rbln.read(wheel) == ("0.13.1", rbln.read(folder)[1])


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no folder torch_rbln"):
        rbln.read(tmp_path)


def test_what_has_changed() -> None:
    old = [Name("m", "a", "function", "x"), Name("m", "b", "function", ""), Name("m", "c", "function", "y")]
    new = [Name("n", "a", "function", "x"), Name("m", "c", "function", "y, z=1"), Name("m", "d", "class", "")]
    assert rbln.changes(old, new) == ["- b", "+ d()", "~ c(y) is (y, z=1)"]
    assert rbln.changes(old, old) == []


def test_the_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rbln, "FILE", tmp_path / "names.tsv")
    assert rbln.main([str(folder)]) == 0
    assert "torch-rbln nothing -> 0.13.0: 8 names" in capsys.readouterr().out
    assert rbln.listed() == rbln.read(folder)
    assert rbln.main([str(folder), "--check"]) == 0
    module = folder / "torch_rbln" / "memory.py"
    module.write_text(module.read_text().replace("def offload()", "def offload(path)"))
    written = rbln.FILE.read_text()
    assert rbln.main([str(folder), "--check"]) == 1
    assert "~ offload() is (path)" in capsys.readouterr().out
    assert rbln.FILE.read_text() == written


def test_the_list_is_that_of_the_release_named_in_the_docs() -> None:
    version, names = rbln.listed()
    assert version == "0.12.0"
    assert sum("." not in name.name for name in names) == 56
    assert {name.kind for name in names if name.name in ("Stream", "explain", "Stream.priority")} == {
        "class",
        "function",
        "property",
    }


def test_a_call_that_would_break_is_told() -> None:
    assert rbln.difference(Name("m", "empty_cache", "function", "device=None")) is None
    assert rbln.difference(Name("m", "empty_cache", "function", "device=None, hard=False")) == (
        "parameter hard is missing"
    )

"""The folder of compiled kernels: its size, and disks that are full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torch_loom.errors import CompilationError, ConfigurationError
from torch_loom.kernels import host_compiler, kept

TEXT = 'extern "C" const char* loom_entry_(void* const*, const long*, const char*) {{ return "{}"; }}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "kernels"
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", str(place))
    return place


def compiled(text: str) -> int:
    source = TEXT.format(text)
    return host_compiler.compiled(source, source, options=("-x", "c++", "-O0", "-fPIC", "-shared"))


def test_what_was_used_longest_ago_is_removed(folder: Path) -> None:
    folder.mkdir()
    for number, end in enumerate(("so", "h.gch", "so", "so")):
        path = folder / f"{number}.{end}"
        path.write_bytes(bytes(1000))
        path.with_suffix(".sha256").write_bytes(b"seal")
        os.utime(path, (number, number))
    kept.note_use(folder / "0.so")
    kept.shrink(folder, 2500)
    assert sorted(path.name for path in folder.iterdir()) == ["0.sha256", "0.so", "3.sha256", "3.so"]


def test_a_compilation_removes_what_is_too_much(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE_LIMIT", "2MiB")
    compiled("first")
    (old,) = folder.glob("*.so")
    with old.open("ab") as file:
        file.truncate(3 << 20)
    os.utime(old, (1, 1))
    compiled("second")
    assert not old.exists()
    assert len(list(folder.glob("*.so"))) == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_compilation_is_told_on_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = tmp_path / "slow"
    compiler.write_text('#!/bin/sh\nfor word; do last=$word; done\nsleep 0.3\ntouch "$last"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("TORCH_LOOM_COMPILER", str(compiler))
    monkeypatch.setattr(host_compiler, "LONG_SECONDS", 0.05)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    made = tmp_path / "made"
    host_compiler.run([str(made)], made, "")
    said = capsys.readouterr().err
    assert said == (f"torch-loom: {compiler} is compiling a kernel … 0 s\n" if is_terminal else "")


def test_a_full_disk_is_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(library: Path, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept, "keep", no_space)
    with pytest.raises(ConfigurationError, match=r"No space left on device.*name another folder"):
        compiled("no space")
    assert sorted(path.name for path in folder.iterdir()) == ["lock"]
    monkeypatch.undo()


def test_a_compiler_that_is_killed_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = Path(__file__).parent / "programs" / "killed_compiler.sh"
    monkeypatch.setenv("TORCH_LOOM_COMPILER", str(killed))
    with pytest.raises(CompilationError):
        compiled("killed")
    monkeypatch.delenv("TORCH_LOOM_COMPILER")
    assert compiled("killed") != 0
    assert not list(folder.glob("building.*"))

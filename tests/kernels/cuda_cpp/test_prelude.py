"""The headers in front of each source: precompiled once, and no source depends on that."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_loom.kernels import kept
from torch_loom.kernels.cuda_cpp import library, nvcc, prelude

PLAIN = ["-include", "loom_cuda/prelude.h"]
OPTIONS = library.options(is_checked=False)


def precompiled(options: list[str]) -> Path:
    """Return the file that is used with these options."""
    words = prelude.included(["g++"], options)
    return Path(words[words.index("-include") + 1] + ".gch")


@pytest.mark.long
def test_headers_are_compiled_once() -> None:
    file = precompiled(OPTIONS)
    made = file.stat().st_ino
    assert kept.is_whole(file)
    assert precompiled(OPTIONS) == file
    assert file.stat().st_ino == made
    assert precompiled([*OPTIONS, "-O1"]) != file


@pytest.mark.long
@pytest.mark.parametrize("left", [0, 1000])
def test_a_damaged_file_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", str(tmp_path / "kernels"))
    options = [*OPTIONS, "-O0"]
    file = precompiled(options)
    with file.open("r+b") as contents:
        contents.truncate(left)
    assert precompiled(options) == file
    assert kept.is_whole(file)
    assert sorted(path.name for path in file.parent.iterdir()) == sorted(
        [file.name, file.stem, f"{file.stem[:-2]}.h.sha256", "prelude.lock"]
    )


def test_headers_are_read_where_they_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    assert prelude.included(["g++"], OPTIONS)[:2] == PLAIN


def test_headers_are_read_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_KERNEL_CACHE_LIMIT", "64MiB")
    assert prelude.included(["g++"], OPTIONS) == [*prelude.READ]


@pytest.mark.long
def test_what_a_source_depends_on(tmp_path: Path) -> None:
    source, depends = tmp_path / "x.cu", tmp_path / "x.d"
    source.touch()
    words = ["-c", str(source), "-o", str(tmp_path / "x.o"), "-MD", "-MF", str(depends)]
    assert nvcc.main(words) == 0
    assert "loom_cuda/textures.h" in depends.read_text(encoding="utf-8")


@pytest.mark.parametrize(("compiler", "options"), [("g++", ["--no-such-option"]), ("no-such-compiler", [])])
def test_what_cannot_be_compiled_is_said_by_the_source(compiler: str, options: list[str]) -> None:
    assert prelude.included([compiler], [*OPTIONS, *options])[:2] == PLAIN


@pytest.mark.long
def test_macros_that_the_headers_know(tmp_path: Path) -> None:
    """They are read again then: an assertion that fails is none under NDEBUG."""
    source, made = tmp_path / "asserts.cu", tmp_path / "asserts.o"
    source.write_text("__global__ void asserts(int n) { assert(n); }\n", encoding="utf-8")
    for options, fails in (([], True), (["-DNDEBUG"], False)):
        assert nvcc.main(["-c", str(source), *options, "-o", str(made)]) == 0
        assert (b"loom_cuda_assert_fail" in made.read_bytes()) == fails

"""Files are written whole or not at all; what is no file is written to and stays what it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from torch_loom.config.files import whole_file
from torch_loom.errors import ImageError
from torch_loom.image import file


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    with whole_file(link) as unfinished:
        unfinished.write_text("new")
        assert real.read_text() == "old"
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    with whole_file(pipe) as unfinished:
        unfinished.write_text("whole")
    reader.join()
    assert got == ["whole"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError), whole_file(target) as unfinished:
        unfinished.write_text("new\ud800", encoding="utf-8")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("path", ["", "a\0b", 5, b"bytes", "/proc/none/file", "."])
def test_paths_that_cannot_be(path: Any) -> None:
    with (
        pytest.raises(ImageError, match="the report cannot be written"),
        file.whole_file(path, "report") as unfinished,
    ):
        unfinished.write_text("never")

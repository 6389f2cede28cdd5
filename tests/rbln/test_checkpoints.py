"""Checkpoints written under one name of the device load under the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import NAME

PROGRAMS = Path(__file__).parent / "programs" / "checkpoints"

ENV = {"loom": {}, "rbln": NAME}


@pytest.mark.long
@pytest.mark.parametrize(("written", "name"), [("rbln", "loom"), ("loom", "rbln")])
def test_torch_save(fork_python: PythonRunner, tmp_path: Path, written: str, name: str) -> None:
    fork_python(PROGRAMS / "write.py", ENV[written], given=(written, str(tmp_path)))
    fork_python(PROGRAMS / "read.py", ENV[name], given=(name, str(tmp_path), written))


@pytest.mark.long
@pytest.mark.parametrize(("written", "name"), [("rbln", "loom"), ("loom", "rbln")])
def test_safetensors(fork_python: PythonRunner, tmp_path: Path, written: str, name: str) -> None:
    fork_python(PROGRAMS / "write_safetensors.py", ENV[written], given=(written, str(tmp_path)))
    fork_python(PROGRAMS / "read_safetensors.py", ENV[name], given=(name, str(tmp_path)))

"""CONTRIBUTING's recipe "Add an op", followed on a copy of the repository: one file is edited."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# An op that PyTorch has for its own tests, which the table says nothing of.
OP = "_test_optional_intlist"
READER = """
#include <cstdio>
#include "torch/ops/op_facts.h"
int main() {
  const auto& facts = loom::glue::facts_of("aten::_test_optional_intlist");
  std::printf("%s %d %d\\n", loom::runtime::name_of(facts.shape_class),
              facts.has(loom::glue::op_flag::kHostTensors), facts.has(loom::glue::op_flag::kMovesData));
}
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of what the recipe names: the table, the command, and what C++ reads of it."""
    shutil.copytree(ROOT / "torch_loom/ops", tmp_path / "torch_loom/ops")
    (tmp_path / "torch_loom/__init__.py").touch()
    for room in ("ops", "generated"):
        shutil.copytree(ROOT / "csrc/torch" / room, tmp_path / "csrc/torch" / room)
    shutil.copytree(ROOT / "csrc/runtime", tmp_path / "csrc/runtime")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/__init__.py").touch()
    shutil.copy(ROOT / "tools/op_table.py", tmp_path / "tools")
    return tmp_path


def generate(folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "tools.op_table", *arguments]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return result.returncode, result.stdout


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "torch_loom/ops/families/data.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def follow(copy: Path) -> None:
    """Take steps 1 and 2: the op in its family, and a fact."""
    edit(copy, '"host_lists": "index.Tensor ', f'"host_tensors": "{OP}", "host_lists": "index.Tensor ')
    edit(copy, '"index _unsafe_index index_select', f'"{OP} index _unsafe_index index_select')


@pytest.mark.slow
def test_an_op_is_added_by_editing_one_file(copy: Path) -> None:
    before = contents(copy)
    follow(copy)
    code, out = generate(copy, "--check")
    assert (code, "op_facts.inc" in out) == (1, True)
    code, out = generate(copy)
    assert code == 0, out
    after = contents(copy)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {"torch_loom/ops/families/data.py", "csrc/torch/generated/op_facts.inc"}
    rows = set(after["csrc/torch/generated/op_facts.inc"].splitlines())
    added = rows - set(before["csrc/torch/generated/op_facts.inc"].splitlines())
    assert added == {
        f'{{"aten::{OP}", ShapeClass::kGatherScatter, 2}},',
        f'{{"aten::{OP}.out", ShapeClass::kGatherScatter, 1}},',
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiles a file")
def test_what_is_compiled_knows_an_added_op(copy: Path) -> None:
    follow(copy)
    assert generate(copy)[0] == 0
    (copy / "reader.cpp").write_text(READER, encoding="utf-8")
    sources = ["reader.cpp", "csrc/torch/ops/op_facts.cpp", "csrc/runtime/op_record.cpp"]
    command = ["g++", "-std=c++20", "-Icsrc", *sources, "-o", "reader"]
    subprocess.run(command, cwd=copy, check=True)
    read = subprocess.run(["./reader"], cwd=copy, capture_output=True, text=True, check=True)
    assert read.stdout == "gather_scatter 1 0\n"


@pytest.mark.slow
def test_a_fact_of_an_op_that_does_not_exist_is_refused(copy: Path) -> None:
    edit(copy, '"host_lists": "index.Tensor ', '"host_tensors": "no_such_op", "host_lists": "index.Tensor ')
    code, out = generate(copy)
    assert code == 1
    assert "torch_loom/ops names ops that PyTorch does not have: no_such_op" in out

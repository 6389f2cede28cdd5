"""CONTRIBUTING's recipes "Add an op" and "With a fused kernel", followed on a copy of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from torch.utils.cpp_extension import include_paths

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
# An op that PyTorch has for its own tests, which the table says nothing of.
OP = "_test_optional_intlist"
DATA = "torch_loom/ops/families/data.py"
# What the steps of "With a fused kernel" write for the same op, beside its kernel, programs/toy.cpp.
FUSED = {
    "torch_loom/ops/model.py": ('    "attention": "scaled', '    "toy": "adds a number",\n'),
    "torch_loom/ops/families/elementwise.py": (
        '    Family(\n        "arithmetic",',
        f'    Family("toys", "elementwise", "", lowering="data.toy", fused={{"toy": "{OP}"}}),\n',
    ),
    "csrc/torch/kernels/register.h": ("DO(factories) ", "DO(toy) "),
    "torch_loom/chips/cost/lowerings/data.py": (
        "def item(op: Op)",
        'def toy(op: Op) -> list[Kernel]:\n    return [stream("fill", op)]\n\n\n',
    ),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of what the recipes name: the table, the command, costs, and C++."""
    for part in ("ops", "chips", "config"):
        shutil.copytree(ROOT / "torch_loom" / part, tmp_path / "torch_loom" / part)
    shutil.copy(ROOT / "torch_loom/errors.py", tmp_path / "torch_loom")
    (tmp_path / "torch_loom/__init__.py").touch()
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/__init__.py").touch()
    shutil.copy(ROOT / "tools/op_table.py", tmp_path / "tools")
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, *arguments]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return result.returncode, result.stdout


def generate(folder: Path, *arguments: str) -> tuple[int, str]:
    return run(folder, "-m", "tools.op_table", *arguments)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def edit(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def what_cpp_reads(copy: Path) -> str:
    sources = [str(PROGRAMS / "reader.cpp"), "csrc/torch/ops/op_facts.cpp", "csrc/runtime/op_record.cpp"]
    command = ["g++", "-std=c++20", "-Icsrc", *sources, "-o", "reader"]
    subprocess.run(command, cwd=copy, check=True)
    return subprocess.run(["./reader"], cwd=copy, capture_output=True, text=True, check=True).stdout


def changed_files(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in after if before.get(name) != after[name]}


def follow(copy: Path) -> None:
    """Take steps 1 and 2: the op in its family, and a fact."""
    edit(copy, DATA, '"host_lists": "index.Tensor ', f'"host_tensors": "{OP}", "host_lists": "index.Tensor ')
    edit(copy, DATA, '"index _unsafe_index index_select', f'"{OP} index _unsafe_index index_select')


@pytest.mark.slow
def test_an_op_is_added_by_editing_one_file(copy: Path) -> None:
    before = contents(copy)
    follow(copy)
    code, out = generate(copy, "--check")
    assert (code, "op_facts.inc" in out) == (1, True)
    code, out = generate(copy)
    assert code == 0, out
    after = contents(copy)
    assert changed_files(before, after) == {DATA, "csrc/torch/generated/op_facts.inc"}
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
    assert what_cpp_reads(copy) == "gather_scatter 1 0 none\n"


def follow_fused(copy: Path) -> None:
    """Take the steps of "With a fused kernel"."""
    for name, (place, added) in FUSED.items():
        edit(copy, name, place, added + place)
    shutil.copy(PROGRAMS / "toy.cpp", copy / "csrc/torch/kernels")


@pytest.mark.slow
def test_an_op_with_a_fused_kernel_is_added_in_five_files(copy: Path) -> None:
    before = contents(copy)
    follow_fused(copy)
    by_hand = changed_files(before, contents(copy))
    assert by_hand == {*FUSED, "csrc/torch/kernels/toy.cpp"}
    assert len(by_hand) <= 5
    code, out = generate(copy)
    assert code == 0, out
    generated = changed_files(before, contents(copy)) - by_hand
    assert generated == {
        f"csrc/{name}.inc" for name in ("torch/generated/op_facts", "runtime/generated/fused_kernels")
    }
    # A chip's description may name the kernel, and those that do not are read as before.
    assert run(copy, str(PROGRAMS / "toy_on_chips.py")) == (0, "False True fill\n")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiles a file")
def test_the_kernel_of_an_added_op_compiles(copy: Path) -> None:
    follow_fused(copy)
    assert generate(copy)[0] == 0
    row = f'{{"aten::{OP}", ShapeClass::kElementwise, 0, FusedKernel::kToy}},'
    assert row in contents(copy)["csrc/torch/generated/op_facts.inc"]
    includes = ["csrc", *include_paths(), sysconfig.get_paths()["include"]]
    command = ["g++", "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in includes)]
    subprocess.run([*command, "csrc/torch/kernels/toy.cpp"], cwd=copy, check=True)


@pytest.mark.slow
def test_a_fact_of_an_op_that_does_not_exist_is_refused(copy: Path) -> None:
    edit(
        copy,
        DATA,
        '"host_lists": "index.Tensor ',
        '"host_tensors": "no_such_op", "host_lists": "index.Tensor ',
    )
    code, out = generate(copy)
    assert code == 1
    assert "torch_loom/ops names ops that PyTorch does not have: no_such_op" in out

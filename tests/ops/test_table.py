"""The op table: what it says, what it does not cover, and that what is generated from it is up to date."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch

from tools import op_table
from torch_loom import _C, ops
from torch_loom.ops.model import FLAGS

ROOT = Path(__file__).parents[2]


def test_generated_files_are_up_to_date() -> None:
    for name, text in op_table.contents().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name}: run `python -m tools.op_table`"
    here = {path.name for path in (ROOT / op_table.FOLDER).iterdir()}
    assert here == set(op_table.FILES), "a generated file that nothing writes"


def test_the_table_needs_no_torch() -> None:
    for path in (ROOT / "torch_loom/ops").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules.append(node.module or "")
            assert not [name for name in modules if name.split(".")[0] in ("torch", "numpy")], path


def test_every_name_is_of_an_op() -> None:
    assert op_table.unknown_ops() == []
    reached = {id(ops.family_of(op)) for op in op_table.op_names()}
    assert [family.name for family in ops.FAMILIES if id(family) not in reached] == []


def test_every_op_that_the_device_serves_has_an_entry() -> None:
    served = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    without = {op for op in served if op.startswith("aten::") and not ops.has_entry(op)}
    # PyTorch's own test ops; whatever comes new costs the bytes it moves until somebody says more.
    assert {op for op in without if not op.startswith("aten::_test_")} == set()


def test_an_op_without_an_entry_costs_what_it_moves() -> None:
    assert ops.family_of("mylib::blend") is ops.DEFAULT
    assert ops.DEFAULT.shape_class == "bytes_moved"


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("aten::add.Tensor", "elementwise"),
        ("aten::add_.Tensor", "elementwise"),
        ("aten::add.out", "elementwise"),
        ("aten::_foreach_add_.Scalar", "elementwise"),
        ("aten::sigmoid_backward", "elementwise"),
        ("aten::max_pool2d_with_indices_backward.grad_input", "pooling"),
        ("aten::_foreach_norm.Scalar", "reduction"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::fft_hfft2", "fourier"),
        ("aten::__lshift__.Scalar", "elementwise"),
        ("aten::_softmax_backward_data", "softmax"),
        ("aten::special_bessel_j1", "elementwise"),
        ("aten::special_logsumexp", "reduction"),
        ("torchvision::roi_align", "resampling"),
        ("aten::convolution_backward", "convolution"),
    ],
)
def test_forms_of_an_op_belong_to_its_family(op: str, expected: str) -> None:
    assert ops.family_of(op).shape_class == expected


@pytest.mark.parametrize("op", ["aten::add.Tensor", "aten::index.Tensor", "aten::fill_.Tensor", "aten::mm"])
def test_cpp_reads_what_the_table_says(op: str) -> None:
    name, _, overload = op.partition(".")
    facts = _C.op_facts(name, overload)
    own = op_table.facts_of(op)
    assert facts["name"] == op
    assert facts["shape_class"] == ops.family_of(op).shape_class
    assert {flag for bit, flag in enumerate(FLAGS) if facts["flags"] >> bit & 1} == own & set(FLAGS)


def test_an_op_has_one_record() -> None:
    first, again = _C.op_facts("aten::mul", "Tensor"), _C.op_facts("aten::mul", "Tensor")
    assert first["id"] == again["id"] > 0
    assert _C.op_facts("aten::mul", "Scalar")["id"] != first["id"]


def test_an_op_in_two_families_is_refused() -> None:
    from torch_loom.ops import table

    double = ops.Family("again", "elementwise", "mm")
    known = table.FAMILIES
    table.FAMILIES = (*known, double)
    table._entries.cache_clear()
    try:
        with pytest.raises(ValueError, match="'mm' stands in 'matrix products' and in 'again'"):
            table._entries()
    finally:
        table.FAMILIES = known
        table._entries.cache_clear()
    with pytest.raises(ValueError, match="shape_class='curly' is none of"):
        ops.Family("odd", "curly", "mm")
    with pytest.raises(ValueError, match="flops are given for linear_algebra alone"):
        ops.Family("uncounted", "linear_algebra", "linalg_qr")


def test_shape_classes_are_those_of_cpp() -> None:
    header = (ROOT / "csrc/runtime/op_record.h").read_text(encoding="utf-8")
    body = re.search(r"enum class ShapeClass : uint8_t \{(.*?)\};", header, re.DOTALL)
    assert body is not None
    names = re.findall(r"^\s*(k\w+),", body[1], re.MULTILINE)
    assert names == [op_table.enumerator(name) for name in ops.SHAPE_CLASSES]
    flags = (ROOT / "csrc/torch/ops/op_facts.h").read_text(encoding="utf-8")
    values = dict(re.findall(r"\bk(\w+) = (\d+)", flags))
    assert values == {op_table.enumerator(flag)[1:]: str(1 << bit) for bit, flag in enumerate(FLAGS)}

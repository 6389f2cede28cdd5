"""The op table: what it says, what it does not cover, and that what is generated from it is up to date."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch

from tools import op_table
from torch_loom import _C, ops
from torch_loom.chips.cost.lower import lowering_of
from torch_loom.chips.cost.lowerings import data, products, rows
from torch_loom.ops.model import BYTES, FLAGS

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_generated_files_are_up_to_date() -> None:
    for name, text in op_table.contents().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name}: run `python -m tools.op_table`"
    folders = {(ROOT / name).parent for name in op_table.FILES}
    here = {str(path.relative_to(ROOT)) for folder in folders for path in folder.iterdir()}
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
    torch.loom.init()  # most kernels are registered then
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


@pytest.mark.long
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
    with pytest.raises(ValueError, match="lost: give a lowering, or why the time is that of the bytes"):
        ops.Family("lost", "fourier", "fft_fft")
    with pytest.raises(ValueError, match="fused \\['typo'\\] are none of"):
        ops.Family("mistyped", "elementwise", "", fused={"typo": "_fused_rms_norm"})


@pytest.mark.parametrize("family", ops.FAMILIES, ids=lambda family: family.name)
def test_every_family_has_kernels_or_says_why_not(family: ops.Family) -> None:
    assert callable(lowering_of(family))
    is_work = family.shape_class not in ("bytes_moved", "elementwise")
    assert bool(family.bytes_only) == (is_work and family.kernels == BYTES)


def test_every_lowering_belongs_to_a_family() -> None:
    named = {family.kernels for family in ops.FAMILIES}
    here = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (data, products, rows)
        for name, value in inspect.getmembers(module, inspect.isfunction)
        if value.__module__ == module.__name__ and not name.startswith("_")
        if [*inspect.signature(value).parameters] == ["op"]
    }
    assert here == named


def test_every_fused_kernel_is_asked_for() -> None:
    by_table = {kernel for family in ops.FAMILIES for kernel in family.fused}
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "csrc").rglob("*.*")
        if "generated" not in str(path)
    )
    lost = [
        name
        for name in ops.FUSED_KERNELS
        if name not in by_table and f"FusedKernel::{op_table.enumerator(name)}" not in code
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("aten::_fused_rms_norm", "rms_norm"),
        ("aten::_fused_rms_norm_backward", "rms_norm"),
        ("aten::_fused_adamw_.tensor_lr", "optimizer"),
        ("aten::_thnn_fused_gru_cell_backward", "rnn_cell"),
        ("aten::rms_norm", None),
        ("aten::add.Tensor", None),
        ("mylib::blend", None),
    ],
)
def test_which_ops_need_a_kernel_of_the_chip(op: str, kernel: str | None) -> None:
    assert ops.fused_kernel_of(op) == kernel


def test_no_unboxed_op_depends_on_what_a_number_is() -> None:
    def takes_number(op: str) -> bool:
        name, _, overload = op.partition(".")
        schema = torch._C._get_schema(name, overload)
        return any(
            kind in str(argument.type) for argument in schema.arguments for kind in ("number", "float")
        )

    unboxed = [op for op in op_table.op_names() if "unboxed" in ops.facts_of(op)]
    exact = {op for op in unboxed if ops.facts_of(op) & {"sized_by_numbers", "engine_checks"}}
    assert len(unboxed) > 50
    assert [op for op in exact if takes_number(op)] == []
    assert takes_number("aten::add.Tensor")

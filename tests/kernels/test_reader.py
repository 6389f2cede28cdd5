"""The reader of Triton's IR."""

from __future__ import annotations

import pytest

from tests.kernels.launching import TEXTS
from torch_loom.errors import KernelTextError
from torch_loom.kernels.ttir import read
from torch_loom.kernels.ttir.model import Descriptor, Module, Pointer, Scalar, Tensor


def text(name: str) -> str:
    return (TEXTS / f"{name}.ttir").read_text(encoding="utf-8")


def in_kernel(*lines: str, arguments: str = "") -> Module:
    body = "\n".join(lines)
    return read(f"module {{\ntt.func public @kernel({arguments}) {{\n{body}\ntt.return\n}}\n}}\n")


def test_arguments_and_their_types() -> None:
    kernel = read(text("add")).kernel
    assert kernel.name == "add"
    assert [one.name for one in kernel.arguments] == ["x", "y", "o", "n"]
    assert [one.type for one in kernel.arguments] == [*[Pointer(Scalar("f32"))] * 3, Scalar("i32")]
    assert kernel.argument_attributes[0] == {"tt.divisibility": 16}


def test_lines_of_the_program() -> None:
    ops = list(read(text("add")).kernel.walk())
    assert {str(op.place) for op in ops if op.name == "tt.load"} == {"kernels.py:18"}


def test_results_have_types_that_the_text_leaves_out() -> None:
    ops = {op.name: op for op in read(text("add")).kernel.walk()}
    assert ops["tt.load"].result.type == Tensor((1024,), Scalar("f32"))
    assert ops["arith.cmpi"].result.type == Tensor((1024,), Scalar("i1"))


def test_the_number_of_a_block_of_one() -> None:
    lines = ["%b = arith.constant dense<7> : tensor<1xi32>", "%n = tt.unsplat %b : tensor<1xi32>"]
    ops = {op.name: op for op in in_kernel(*lines).kernel.walk()}
    assert ops["tt.unsplat"].result.type == Scalar("i32")


def test_regions_and_loops() -> None:
    ops = {op.name: op for op in read(text("product")).kernel.walk()}
    loop = ops["scf.for"]
    assert len(loop.results) == 3
    assert len(loop.regions[0].only.arguments) == 4
    assert ops["tt.dot"].attributes["inputPrecision"] == "tf32"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("arith.constant 0x7F800000 : f32", float("inf")),
        ("arith.constant -5 : i32", -5),
        ("arith.constant true", True),
        ("arith.constant 1.500000e+00 : f16", 1.5),
    ],
)
def test_constants(line: str, value: float) -> None:
    (op, _) = in_kernel(f"%c = {line}").kernel.walk()
    assert op.attributes["value"] == value


def test_constant_blocks() -> None:
    (op, _) = in_kernel("%c = arith.constant dense<[1, 2]> : tensor<2xi32>").kernel.walk()
    assert op.attributes["value"].values == (1, 2)


def test_descriptors() -> None:
    kernel = in_kernel(arguments="%d: !tt.tensordesc<tensor<16x32xf16>>").kernel
    assert kernel.arguments[0].type == Descriptor(Tensor((16, 32), Scalar("f16")))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["%a = arith.addi %b, %b : i32"], "line 3: %b is not defined"),
        (["%a = tt.load"], "line 3: tt.load has 0 results"),
        (["%a, %b = arith.constant 1 : i32"], "line 3: arith.constant has 1 results"),
        (["%c = arith.constant dense<1> : tensor<4xi32, #blocked>"], "a layout"),
        (["%c = arith.constant 1 : !foo<3>"], "line 3"),
        (['%c = arith.constant "unended'], "line 3"),
    ],
)
def test_damaged_texts_name_their_line(lines: list[str], words: str) -> None:
    with pytest.raises(KernelTextError, match="cannot be read") as error:
        in_kernel(*lines)
    assert words in str(error.value)


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7])
def test_a_cut_text_is_refused(part: float) -> None:
    whole = text("softmax").split("#loc1 = ")[0]
    with pytest.raises(KernelTextError):
        read(whole[: int(len(whole) * part)])


def test_a_text_nested_without_end_is_refused() -> None:
    with pytest.raises(KernelTextError, match="levels"):
        read("tt.func @f(%a: " + "!tt.ptr<" * 100_000)

"""Formats whose blocks have scales: conversion and products against slow references, programs, bad input."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from torch_loom.errors import FormatError
from torch_loom.numerics import BlockScaled, compare, tensor_core
from torch_loom.numerics.tensor_cores.block_formats import (
    blocks_of_operand,
    element_codes,
    multiplied,
    quantized,
    scale_values,
    to_blocks,
    unswizzled,
)

FORMATS = list(BlockScaled)


def code_values(element: str) -> list[tuple[float, bool]]:
    """The magnitudes of an element's codes, and whether the code is even."""
    exponent_bits, mantissa_bits, bias = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m1": (2, 1, 1)}[element]
    found = []
    for exponent, mantissa in itertools.product(range(1 << exponent_bits), range(1 << mantissa_bits)):
        is_top = exponent == (1 << exponent_bits) - 1
        if (element == "e5m2" and is_top) or (element == "e4m3" and is_top and mantissa == 7):
            continue
        fraction = mantissa / (1 << mantissa_bits)
        value = math.ldexp(fraction + bool(exponent), max(exponent, 1) - bias)
        found.append((value, mantissa % 2 == 0))
    return found


def nearest(x: float, codes: list[tuple[float, bool]]) -> float:
    size = min(abs(x), codes[-1][0])
    distance = min(abs(value - size) for value, _ in codes)
    best = [(value, is_even) for value, is_even in codes if abs(value - size) == distance]
    return math.copysign(next((value for value, is_even in best if is_even), best[0][0]), x)


def slow_blocks(x: Tensor, fmt: BlockScaled) -> Tensor:
    """What a tensor [N, K] is in a format, number by number."""
    codes = code_values(fmt.element)
    largest = codes[-1][0]
    whole = float(x.abs().max())
    tensor_scale = float(torch.tensor(whole) / (448.0 * largest)) if fmt is BlockScaled.NVFP4 else 1.0
    out = []
    for row in x.tolist():
        values = []
        for start in range(0, len(row), fmt.block):
            block = row[start : start + fmt.block]
            peak = max(map(abs, block))
            if fmt.scale == "ue8m0":
                exponent = math.frexp(peak)[1] - math.frexp(largest)[1] if peak else -127
                scale = math.ldexp(1.0, max(-127, min(127, exponent)))
            else:
                wanted = float(torch.tensor(peak) / largest / torch.tensor(tensor_scale))
                own = nearest(wanted, code_values("e4m3"))
                scale = float(torch.tensor(own) * tensor_scale)
            for each in block:
                element = nearest(each / scale, codes) if scale else 0.0
                held = torch.tensor(element * (scale if fmt.scale == "ue8m0" else own))
                values.append(float(held * tensor_scale))
        out.append(values)
    return torch.tensor(out)


def samples(seed: int, rows: int, depth: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, depth, generator=generator)
    return x * torch.exp2(torch.randint(-20, 20, (rows, 1), generator=generator))


@pytest.mark.parametrize("fmt", FORMATS)
def test_conversion_is_that_of_the_specification(fmt: BlockScaled) -> None:
    x = samples(1, 12, 128)
    x[0, :40] = 0
    x[1, 3] = -torch.finfo(torch.float32).tiny
    assert torch.equal(to_blocks("test", x, fmt).values(), slow_blocks(x, fmt))


@pytest.mark.parametrize("fmt", [BlockScaled.MXFP8, BlockScaled.MXFP8_E5M2, BlockScaled.MXFP4])
def test_all_codes_stay_what_they_are(fmt: BlockScaled) -> None:
    values = torch.tensor([value for value, _ in code_values(fmt.element)])
    padded = nn.functional.pad(values, (0, -len(values) % (fmt.block - 1))).view(-1, fmt.block - 1)
    rows = nn.functional.pad(padded, (0, 1), value=fmt.largest)  # each block has the scale 1
    both = torch.cat((rows, -rows))
    blocks = to_blocks("test", both, fmt)
    assert torch.equal(blocks.values(), both)
    assert len(element_codes(blocks.elements, fmt.element).unique()) == 2 * len(values)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_block_that_is_not_finite_is_nan(fmt: BlockScaled, bad: float) -> None:
    x = torch.ones(2, 64)
    x[0, 5] = bad
    found = to_blocks("test", x, fmt).values()
    assert found[0, : fmt.block].isnan().all()
    assert not found[0, fmt.block :].isnan().any()
    assert not found[1].isnan().any()


def cut(value: Fraction, step: Fraction) -> Fraction:
    return (abs(value) // step) * step * (1 if value >= 0 else -1)


def exponent_of(value: Fraction) -> int:
    """Of a number that is not 0: that of its leading bit."""
    found = value.numerator.bit_length() - value.denominator.bit_length()
    return found if abs(value) >= Fraction(2) ** found else found - 1


def slow_sum(a: list[Fraction], b: list[Fraction], exponents: list[int], fmt: BlockScaled) -> float:
    """A chain of Blackwell's instructions with block scales over K, exact numbers cut where the rule says."""
    is_wide = fmt.element != "e2m1"
    fraction_bits, group, depth = (25, 1, 32) if is_wide else (35, 16, 64)
    total = Fraction(0)
    for first in range(0, len(a), depth):
        terms, tops = [], []
        for start in range(first, first + depth, group):
            terms.append(sum((a[i] * b[i] for i in range(start, start + group)), Fraction(0)))
            tops.append(exponents[start])
        if total:
            tops.append(exponent_of(total))
        step = Fraction(2) ** (max(tops) - fraction_bits)
        total = sum((cut(each, step) for each in [*terms, total]), Fraction(0))
        if total:
            total = cut(total, Fraction(2) ** (exponent_of(total) - 23))
    return float(total)


@pytest.mark.long
@pytest.mark.parametrize("fmt", FORMATS)
def test_products_are_those_of_the_instructions(fmt: BlockScaled) -> None:
    """With elements that are 1 or above, whose products' exponents are sums of theirs."""
    generator = torch.Generator().manual_seed(3)
    depth = 192
    operands = []
    for rows in (3, 4):
        x = 1 + 5 * torch.rand(rows, depth, generator=generator)
        x *= torch.randint(0, 2, x.shape, generator=generator) * 2 - 1
        x[:, :: fmt.block] = 6.0
        operands.append(to_blocks("test", x, fmt))
    a, b = (each.values() for each in operands)
    if fmt is BlockScaled.NVFP4:
        one = torch.ones(())
        a, b = (replace(each, tensor_scale=one).values() for each in operands)
    got = multiplied(*operands, fmt.rule("b200", "Blackwell"))
    scale = operands[0].tensor_scale * operands[1].tensor_scale
    for i, j in itertools.product(range(3), range(4)):
        left, right = ([Fraction(each) for each in row.tolist()] for row in (a[i], b[j]))
        scales = [
            scale_values(each.scales, fmt.scale)[row] for each, row in zip(operands, (i, j), strict=True)
        ]
        scale_exponents = [[exponent_of(Fraction(each)) for each in part.tolist()] for part in scales]
        exponents = []
        for k in range(depth):
            block = k // fmt.block
            shared = scale_exponents[0][block] + scale_exponents[1][block]
            if fmt.element == "e2m1":
                # A group's sum of products of significands is one number, with the scales' exponents.
                start = k // 16 * 16
                group = [left[n] * right[n] for n in range(start, start + 16)]
                whole = sum(group, Fraction(0)) / Fraction(2) ** shared
                exponents.append(shared)
                assert abs(whole) < 2**11
            else:
                values = [
                    Fraction(each.elements[row, k].item()) for each, row in zip(operands, (i, j), strict=True)
                ]
                exponents.append(shared + exponent_of(values[0]) + exponent_of(values[1]))
        assert got[i, j] == torch.tensor(slow_sum(left, right, exponents, fmt)) * scale


def test_layers_convert_and_attention_does_not() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).eval()
    x = torch.randn(2, 10, 64)
    with torch.no_grad():
        exact = model(x)
        found = tensor_core(model, chip="b200", format=BlockScaled.MXFP8)(x)
        summed = tensor_core(model, chip="b200", format=BlockScaled.MXFP8, exact=False)(x)
    assert 0.01 < (found - exact).norm() / exact.norm() < 0.1
    assert (found - summed).norm() / exact.norm() < 1e-3
    with tensor_core(chip="b200", format=BlockScaled.MXFP8):
        scores = torch.bmm(x, x.transpose(1, 2))
    assert torch.equal(scores, torch.bmm(x, x.transpose(1, 2)))


def test_gradients_of_layers_are_converted_in_a_context() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 32), torch.randn(32, 64, requires_grad=True)
    with tensor_core(chip="b200", format=BlockScaled.MXFP8, exact=False):
        (layer(x) ** 2).sum().backward()
    y = nn.functional.linear(
        quantized(x, BlockScaled.MXFP8), quantized(layer.weight, BlockScaled.MXFP8), layer.bias
    )
    gradient = quantized(2 * y.detach(), BlockScaled.MXFP8)
    weight = quantized(layer.weight.t(), BlockScaled.MXFP8).t()
    assert torch.allclose(x.grad, gradient @ weight, rtol=1e-5, atol=1e-4)


@pytest.mark.long
def test_conversion_is_an_op_with_gradients_that_compiles() -> None:
    x = samples(5, 4, 64).requires_grad_()
    torch.library.opcheck(torch.ops.loom_numerics.block_scaled.default, (x, "NVFP4"))
    compiled = torch.compile(quantized, backend="aot_eager", fullgraph=True)(x, BlockScaled.NVFP4)
    assert torch.equal(compiled, quantized(x, BlockScaled.NVFP4))
    compiled.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def in_tiles(codes: Tensor) -> Tensor:
    """Scales as cuBLAS takes them: tiles of 128 rows and 4 blocks, in which 32 rows are neighbours."""
    rows, columns = codes.shape
    across = -(-columns // 4)
    out = torch.zeros(-(-rows // 128) * across * 512, dtype=torch.uint8)
    for r, c in itertools.product(range(rows), range(columns)):
        tile = r // 128 * across + c // 4
        out[tile * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = codes[r, c]
    return out


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (32, 4), (150, 9), (128, 4)])
def test_scales_in_the_order_of_cublas(rows: int, columns: int) -> None:
    codes = torch.randint(
        0, 255, (rows, columns), dtype=torch.uint8, generator=torch.Generator().manual_seed(2)
    )
    assert torch.equal(unswizzled(in_tiles(codes), rows, columns), codes)


def packed(elements: Tensor, element: str) -> Tensor:
    if element != "e2m1":
        return elements.to(torch.float8_e4m3fn if element == "e4m3" else torch.float8_e5m2)
    codes = element_codes(elements, element).to(torch.uint8)
    return (codes[:, ::2] | codes[:, 1::2] << 4).view(torch.float4_e2m1fn_x2)


@pytest.mark.parametrize("fmt", [BlockScaled.MXFP8, BlockScaled.MXFP4, BlockScaled.NVFP4])
def test_scaled_mm_with_scales_of_blocks(fmt: BlockScaled) -> None:
    a, b = (to_blocks("test", samples(seed, rows, 128), fmt) for seed, rows in ((6, 16), (7, 32)))
    dtype = torch.float8_e8m0fnu if fmt.scale == "ue8m0" else torch.float8_e4m3fn
    scales = [in_tiles(each.scales).view(dtype) for each in (a, b)]
    left, right = (packed(each.elements, fmt.element) for each in (a, b))
    assert torch.equal(blocks_of_operand(left, scales[0]).elements, a.elements)
    if fmt.element == "e2m1":
        return  # the shapes that PyTorch sees are of pairs
    with tensor_core(chip="b200"):
        found = torch._scaled_mm(left, right.t(), *scales, out_dtype=torch.float32)
    exact = a.values().double() @ b.values().double().t()
    assert torch.allclose(found.double(), exact, rtol=1e-5, atol=float(exact.abs().max()) * 1e-6)


def test_comparison_takes_both_kinds_of_formats() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 40), nn.GELU(), nn.Linear(40, 7))  # 40 is no multiple of 32
    found = compare(model, torch.randn(5, 64), [BlockScaled.NVFP4, BlockScaled.MXFP8])
    first, last = (found.of(BlockScaled.MXFP8)[place].errors for place in (0, 2))
    assert 0 < first.relative < 0.1
    assert first.relative < found.of(BlockScaled.NVFP4)[0].errors.relative
    assert last.relative < 0.2
    assert "NVFP4" in found.table()
    assert "MXFP8" in found.to_html()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"chip": "h100", "format": BlockScaled.NVFP4}, r"NVFP4 on h100 \(Hopper\).*allowed: b200"),
        ({"chip": "b200", "format": "NVFP4"}, r"format is 'NVFP4'; allowed: None, BlockScaled\.MXFP8"),
    ],
)
def test_formats_that_a_chip_has_not_are_refused(how: dict[str, object], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        tensor_core(**how)  # type: ignore[call-overload]


def test_depths_that_are_no_multiple_of_the_block_are_refused() -> None:
    model = tensor_core(nn.Linear(33, 3), chip="b200", format=BlockScaled.NVFP4)
    with pytest.raises(FormatError, match="K is 33, and 16 neighbours of NVFP4"):
        model(torch.ones(2, 33))
    partial = tensor_core(nn.Linear(33, 3), chip="b200", format=BlockScaled.NVFP4, partial=True)
    assert torch.allclose(partial(torch.ones(2, 33)), partial.module(torch.ones(2, 33)))


def test_a_convolution_is_converted_by_its_depth_and_not_by_its_width() -> None:
    torch.manual_seed(0)
    layer, x = nn.Conv2d(32, 8, 1), torch.randn(2, 32, 5, 5)
    how = {"chip": "b200", "format": BlockScaled.MXFP8, "exact": False}
    assert torch.equal(tensor_core(layer, **how, partial=True)(x), tensor_core(layer, **how)(x))
    assert not torch.equal(tensor_core(layer, **how, partial=True)(x), layer(x))


def test_operands_that_do_not_fit_their_scales_are_refused() -> None:
    left = torch.ones(4, 64).to(torch.float8_e4m3fn)
    with pytest.raises(FormatError, match=r"3 scales for 4 rows of 2 blocks; allowed: 512"):
        blocks_of_operand(left, torch.ones(3).to(torch.float8_e8m0fnu))
    with pytest.raises(FormatError, match=r"float8_e4m3fn with scales of torch.float8_e4m3fn"):
        blocks_of_operand(left, torch.ones(3).to(torch.float8_e4m3fn))


def test_empty_products() -> None:
    with tensor_core(chip="b200", format=BlockScaled.NVFP4):
        assert (torch.ones(0, 32) @ torch.ones(32, 3)).shape == (0, 3)
        assert torch.equal(torch.ones(2, 0) @ torch.ones(0, 3), torch.zeros(2, 3))

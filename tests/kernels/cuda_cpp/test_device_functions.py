"""Words of packed numbers, modes of rounding, halves: against Python's whole and exact numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "functions.cu").read_text(encoding="utf-8")
Number = Callable[[int, int], int]


def kernel(name: str) -> Callable[..., Any]:
    compiled: Callable[..., Any] = loom._compile_kernel(SOURCE, name)
    return compiled


def parts(word: int, bits: int, is_signed: bool) -> list[int]:
    values = [word >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [v - (1 << bits) if is_signed and v >> bits - 1 else v for v in values]


def by_parts(bits: int, is_signed: bool, change: Number) -> Number:
    def of_words(a: int, b: int) -> int:
        pairs = zip(parts(a, bits, is_signed), parts(b, bits, is_signed), strict=True)
        return sum((change(x, y) & (1 << bits) - 1) << bits * i for i, (x, y) in enumerate(pairs))

    return of_words


def saturated(bits: int, is_signed: bool, change: Number) -> Number:
    least, most = (-1 << bits - 1, (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return by_parts(bits, is_signed, lambda x, y: min(max(change(x, y), least), most))


def signed(word: int) -> int:
    return parts(word, 32, True)[0]


def distance(bits: int, is_signed: bool) -> Number:
    def of_words(a: int, b: int) -> int:
        pairs = zip(parts(a, bits, is_signed), parts(b, bits, is_signed), strict=True)
        return sum(abs(x - y) for x, y in pairs)

    return of_words


def average(x: int, y: int) -> int:
    return (x + y + 1) // 2 if x + y >= 0 else (x + y) // 2


def dot(halves_are_signed: bool, first: int) -> Number:
    def of_words(a: int, b: int) -> int:
        halves, quarters = parts(a, 16, halves_are_signed), parts(b, 8, halves_are_signed)
        return 5 + sum(x * y for x, y in zip(halves, quarters[first : first + 2], strict=True))

    return of_words


# In the order of the kernel's lines.
PACKED: list[Number] = [
    by_parts(16, False, lambda x, y: x + y),
    by_parts(8, False, lambda x, y: x - y),
    saturated(16, True, lambda x, y: x + y),
    saturated(8, False, lambda x, y: x + y),
    saturated(8, True, lambda x, y: x - y),
    saturated(16, False, lambda x, y: x - y),
    by_parts(8, True, average),
    by_parts(16, False, lambda x, y: (x + y + 1) // 2),
    by_parts(8, False, lambda x, y: (x + y) // 2),
    by_parts(16, True, max),
    by_parts(16, False, min),
    by_parts(8, True, lambda x, y: abs(x - y)),
    by_parts(16, False, lambda x, y: -(x > y)),
    by_parts(8, True, lambda x, y: -(x <= y)),
    by_parts(8, False, lambda x, y: int(x >= y)),
    by_parts(16, True, lambda x, _: -x),
    saturated(8, True, lambda x, _: -x),
    by_parts(8, True, lambda x, _: abs(x)),
    saturated(16, True, lambda x, _: abs(x)),
    distance(8, True),
    distance(16, False),
    dot(True, 0),
    dot(False, 2),
    lambda a, b: (signed(a) + signed(b) + 1) // 2,
    lambda a, b: max(signed(a), signed(b), 7),
    lambda a, b: min((a + b) & 0xFFFFFFFF, 7),
]


@pytest.mark.long
def test_words_of_packed_numbers() -> None:
    torch.manual_seed(0)
    edges = torch.tensor([0, 0x80008000, 0x7FFF7F7F, 0xFFFFFFFF, 0x80808080, 0x00010101], dtype=torch.int64)
    x = torch.cat([edges, torch.randint(1 << 32, (60,))])
    y = torch.cat([edges.flip(0), torch.randint(1 << 32, (60,))])
    n = len(x)
    out = torch.zeros(len(PACKED), n, dtype=torch.uint32, device="loom")
    kernel("packed")((2,), (64,), (x.to(torch.uint32).to("loom"), y.to(torch.uint32).to("loom"), out, n))
    found = out.cpu().to(torch.int64)
    for i, function in enumerate(PACKED):
        expected = [function(a, b) & 0xFFFFFFFF for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        assert found[i].tolist() == expected, f"line {i}"


def check_modes(found: list[float], is_below: Callable[[Fraction], bool], least_step: float) -> None:
    """Four results, towards 0, up, down and to nearest; `is_below` says whether one is below the true one."""
    zero, up, down, near = found
    assert is_below(Fraction(down))
    assert not is_below(Fraction(up))
    assert 0 < up - down <= least_step * abs(up)
    assert zero == (down if down > 0 else up)
    assert near in (up, down)


@pytest.mark.long
@pytest.mark.parametrize(("a", "b"), [(1.1, 1.3e-9), (3.7, -0.3), (0.1, 7.0)])
def test_modes_of_rounding(a: float, b: float) -> None:
    d = torch.zeros(4, 4, dtype=torch.float64, device="loom")
    f = torch.zeros(4, 4, device="loom")
    kernel("rounded")((1,), (1,), (torch.tensor([a, b], dtype=torch.float64).to("loom"), d, f))
    for out, step, kind in ((d, 2.0**-51, torch.float64), (f, 2.0**-22, torch.float32)):
        x, y = (Fraction(v) for v in torch.tensor([a, b], dtype=kind).double().tolist())
        rows = out.cpu().double().tolist()
        for row, true in zip(rows, (x + y, x * y, x / y), strict=False):
            check_modes(row, partial(operator.gt, true), step)
        check_modes(rows[3], lambda root: root * root < x, step)  # noqa: B023 - called at once


@pytest.mark.long
def test_narrowed_once_and_by_mode() -> None:
    x = torch.tensor([1.0001, -1.0001, 70000.0, -70000.0, 1e-9, -1e-9, 0.0, 1.5, float("inf")])
    # Above the middle of two halves by less than a float can say, and below that of two bfloat16.
    exact = torch.tensor(
        [1 + 2**-11 + 2**-40, 1 + 2**-8 - 2**-40, -1 - 2**-11 - 2**-40, 3.0, 0, 1e300, -5, 1, 2],
        dtype=torch.float64,
    )
    out = torch.zeros(7, len(x), device="loom")
    kernel("narrowed")((1,), (32,), (x.to("loom"), exact.to("loom"), out, len(x)))
    inf, tiny, ulp = float("inf"), 2.0**-24, 2.0**-10
    found = out.cpu().double().tolist()
    assert found[0] == [1, -1, 65504, -65504, 0, 0, 0, 1.5, inf]
    assert found[1] == [1 + ulp, -1, inf, -65504, tiny, 0, 0, 1.5, inf]
    assert found[2] == [1, -1 - ulp, 65504, -inf, 0, -tiny, 0, 1.5, inf]
    assert abs(found[3][2]) <= 70000
    assert (found[3][0], found[4][0]) == (1, 1 + 2**-7)
    assert [*found[5][:3], found[5][5]] == [1 + ulp, 1 + 2**-8, -1 - ulp, inf]
    assert found[6][1] == 1


@pytest.mark.long
def test_comparisons_of_pairs() -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0], [nan, 1.0], [500.0, 0.5]]).half()
    out = torch.zeros(11, 5, dtype=torch.uint32, device="loom")
    kernel("compared")((1,), (5,), (x.to("loom"), out, 5))
    found = out.cpu().to(torch.int64).tolist()
    assert found[0] == [0xFFFF, 0xFFFF0000, 0, 0, 0xFFFF0000]
    assert found[1] == [0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF]
    assert found[2] == found[3] == [0, 0, 1, 0, 0]
    assert found[4] == [0, 0, 0, 1, 0]
    expected = x[:, 0].float().clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    assert found[5] == expected.tolist()
    assert found[6] == [1, 0, 0, 1, 0]
    assert found[7] == found[8] == [1, 1, 1, 0, 1]
    assert found[9] == [1] * 5
    assert found[10] == [36] * 5


@pytest.mark.long
def test_bessel_functions() -> None:
    x = torch.tensor([0.0, 0.5, -2.0, 4.0, 3.0])
    out = torch.zeros(3, 4, device="loom")
    kernel("bessel")((1,), (4,), (x.to("loom"), out, 4))
    i0, i1, size = out.cpu()
    torch.testing.assert_close(i0, torch.special.i0(x[:4]))
    torch.testing.assert_close(i1, torch.special.i1(x[:4]))
    torch.testing.assert_close(size, torch.full((4,), 0.5 / 3))


@pytest.mark.long
def test_formats_of_four_bits_and_of_powers() -> None:
    x = torch.tensor([0.25, -0.75, 2.5, 3.6, 100.0, -0.1, float("nan"), 2.0**-130])
    out = torch.zeros(4, 8, device="loom")
    kernel("quarters")((1,), (8,), (x.to("loom"), out, 8))
    four, pairs, up, down = out.cpu().tolist()
    assert four == [0, -1, 2, 4, 6, 0, 6, 0]
    assert [int(pair) >> 4 for pair in pairs] == [3] * 8
    assert [*up[:6], up[7]] == [0.25, 1, 4, 4, 128, 0.125, 2.0**-127]
    assert math.isnan(up[6])
    assert down == [125, 126, 128, 128, 133, 123, 255, 0]


@pytest.mark.long
def test_halves_from_and_to_whole_numbers() -> None:
    x = torch.tensor([2049, -2049, 70000, -70000, 300, (1 << 24) + (1 << 16) + 1])
    out = torch.zeros(7, 6, device="loom")
    kernel("whole")((1,), (6,), (x.to("loom"), out, 6))
    inf = float("inf")
    found = out.cpu().tolist()
    assert found[0] == [2048, -2048, 65504, -65504, 300, 65504]
    assert found[1] == [2050, -2048, inf, -65504, 300, inf]
    assert found[2] == [2048, -2050, 65504, -inf, 300, 65504]
    assert found[3] == [2048, -2048, 69632, -69632, 300, 1 << 24]
    # One more than halfway between two bfloat16.
    assert found[4][5] == (1 << 24) + (1 << 17)
    assert found[5] == [2048, -2048, 32767, -32768, 300, 32767]
    assert found[6] == [255, 0, 255, 0, 255, 255]

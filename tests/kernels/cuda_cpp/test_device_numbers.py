"""Atomic functions, half and quarter precision, vectors, bits and functions: against torch and Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "numbers.cu").read_text(encoding="utf-8")


def kernel(name: str) -> Callable[..., Any]:
    return loom._compile_kernel(SOURCE, name)


@pytest.mark.long
def test_atomic_functions() -> None:
    blocks, threads = 4, 96
    n = blocks * threads
    i = torch.zeros(9, dtype=torch.int32)
    i[6] = 255
    u, wide = torch.zeros(2, dtype=torch.uint32), torch.zeros(2, dtype=torch.int64)
    f, d = torch.zeros(2), torch.zeros(1, dtype=torch.float64)
    h, b = torch.zeros(2, dtype=torch.half), torch.zeros(1, dtype=torch.bfloat16)
    on_device = [one.to("loom") for one in (i, u, wide, f, d, h, b)]
    kernel("atomics")((blocks,), (threads,), on_device)
    i, u, wide, f, d, h, b = (one.cpu() for one in on_device)
    xor = 0
    for thread in range(threads):
        xor ^= thread
    assert i.tolist() == [n, -n, threads - 1, 1 - threads, xor if blocks % 2 else 0, 255, 0, 5, 9]
    # It counts 0 to 6 and starts anew; the other way round, from 0 to 6 first.
    assert u.tolist() == [n % 7, -n % 7]
    assert wide.tolist() == [n << 33, (threads - 1) << 40]
    assert (f.tolist(), d.tolist()) == ([n * 0.5, n * 0.25], [n * 0.5])
    assert h.tolist() == [n, 2 * n]
    # Above 256 bfloat16 has no odd numbers: 256 + 1 rounds to 256.
    assert b.tolist() == [256]


@pytest.mark.long
def test_half_precision_rounds_once() -> None:
    torch.manual_seed(0)
    x, z = torch.randn(500).half(), torch.randn(500).bfloat16()
    y, w = torch.empty_like(x, device="loom"), torch.empty_like(z, device="loom")
    kernel("halves")((4,), (128,), (x.to("loom"), z.to("loom"), y, w, 500))
    assert torch.equal(y.cpu(), (x * x) + 1)
    expected = (z.double() * z.double() + 0.5).float().bfloat16().float().exp().bfloat16()
    torch.testing.assert_close(w.cpu(), expected, rtol=2**-8, atol=0)


@pytest.mark.long
def test_pairs_of_halves() -> None:
    torch.manual_seed(0)
    x = torch.randn(100, 2).half()
    y = torch.empty_like(x, device="loom")
    kernel("pairs")((1,), (128,), (x.to("loom"), y, 100))
    assert torch.equal(y.cpu(), (x * x[:, :1]).clamp_min(-1))


@pytest.mark.long
def test_vectors_and_constants() -> None:
    x = torch.arange(64.0)
    y = torch.empty(64, device="loom")
    kernel("quarters")((1,), (32,), (x.to("loom"), y, 16))
    a, b, c, d = x.view(16, 4).unbind(1)
    assert torch.equal(y.cpu().view(16, 4), torch.stack([d, c, 2 * b, a + 3], 1))


@pytest.mark.long
def test_bits() -> None:
    values = [1, 2, 0x80000000, 0xFFFFFFFF, 0x12345678, 0x00FF00FF, 7, 1 << 20]
    y = torch.zeros(9, 8, dtype=torch.uint32, device="loom")
    kernel("bits")((1,), (8,), (torch.tensor(values, dtype=torch.uint32).to("loom"), y, 8))
    found = y.cpu().tolist()

    def permuted(x: int) -> int:
        parts = [x >> 8 * i & 0xFF for i in range(4)] + [4, 3, 2, 1]
        return sum(parts[which] << 8 * i for i, which in enumerate((1, 3, 5, 7)))

    assert found == [
        [x.bit_count() for x in values],
        [32 - x.bit_length() for x in values],
        [(x & -x).bit_length() for x in values],
        [int(f"{x:032b}"[::-1], 2) for x in values],
        [x * 0x9E3779B9 >> 32 for x in values],
        [permuted(x) for x in values],
        [((0xFF << 32 | x) << 4) >> 32 & 0xFFFFFFFF for x in values],
        [round((x >> 8) / 2) for x in values],
        list(range(8)),
    ]


@pytest.mark.long
def test_quarter_precision_is_torchs() -> None:
    torch.manual_seed(0)
    x = torch.cat(
        [torch.randn(200) * 10, torch.tensor([0.0, -0.0, 1e-3, 2e-3, 447.0, 57000.0, 2**-9, 2**-16])]
    )
    y, z = torch.empty_like(x, device="loom"), torch.empty_like(x, device="loom")
    kernel("eighths")((4,), (64,), (x.to("loom"), y, z, len(x)))
    assert torch.equal(y.cpu(), x.clamp(-448, 448).to(torch.float8_e4m3fn).float())
    assert torch.equal(z.cpu(), x.clamp(-57344, 57344).to(torch.float8_e5m2).float())


@pytest.mark.long
def test_functions() -> None:
    x = torch.tensor([0.1, 0.5, 1.0, 1.5, 2.0, 3.0])
    y = torch.empty(8, 6, device="loom")
    kernel("functions")((1,), (6,), (x.to("loom"), y, 6))
    expected = torch.stack(
        [
            x.rsqrt(),
            2 * x + 1,
            x,
            (x / 10).erfinv(),
            torch.special.ndtr(x),
            (x - 1).clamp(0, 1),
            (x * math.pi).sin(),
            10**x,
        ]
    )
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_a_variable_of_the_device_and_a_lambda() -> None:
    y = torch.zeros(3, dtype=torch.int32, device="loom")
    kernel("count")((3,), (32,), (y,))
    assert y.tolist() == [6, 6, 6]

"""Inline PTX of tensor cores and packed registers, against torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "tensor_ptx.cu").read_text(encoding="utf-8")


def kernel(name: str) -> Callable[..., Any]:
    return loom._compile_kernel(SOURCE, name)


@pytest.mark.long
@pytest.mark.parametrize("checks", ["0", "1"])
def test_products(checks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_CHECK_KERNELS", checks)
    torch.manual_seed(0)
    a, b = torch.randn(16, 16).half(), torch.randn(16, 8).half()
    d = torch.zeros(16, 8, device="loom")
    kernel("product_of_halves")((1,), (32,), (a.to("loom"), b.to("loom"), d))
    torch.testing.assert_close(d.cpu(), a.float() @ b.float() + 1)
    whole = [torch.randint(-128, 128, (rows, 32), dtype=torch.int8) for rows in (16, 8)]
    sums = torch.zeros(16, 8, dtype=torch.int32, device="loom")
    kernel("product_of_bytes")((1,), (32,), (*(one.to("loom") for one in whole), sums))
    assert torch.equal(sums.cpu(), whole[0].int() @ whole[1].int().T)
    a, b = torch.randn(16, 8), torch.randn(8, 8)
    kernel("product_of_floats")((1,), (32,), (a.to("loom"), b.to("loom"), d))
    torch.testing.assert_close(d.cpu(), a @ b.T, atol=1e-2, rtol=1e-2)
    assert not torch.equal(d.cpu(), a @ b.T)  # tf32 has ten bits of fraction


@pytest.mark.long
def test_scalars() -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (64,)).int()
    out = torch.zeros(5, 64, dtype=torch.int32, device="loom")
    kernel("scalars")((1,), (64,), (x.to("loom"), out))
    kept, table, stored, turned, halves = out.cpu()
    other = x.roll(-32)
    other[32:] = x[32:]
    assert torch.equal(kept, torch.maximum(x, other))
    assert torch.equal(table, (x & other) | 12)
    assert torch.equal(stored, torch.where(torch.arange(64) % 2 == 1, 7, x))
    unsigned = x.long() & 0xFFFFFFFF
    swapped = (unsigned >> 16) | ((unsigned & 0xFFFF) << 16)
    assert torch.equal(turned.long() & 0xFFFFFFFF, swapped)
    assert halves.unique().tolist() == [0x47004400]


@pytest.mark.long
def test_registers_are_bits_and_instructions_have_types() -> None:
    out = torch.zeros(64, dtype=torch.int32, device="loom")
    kernel("typed")((1,), (1,), (out,))
    found = out.cpu().view(-1, 2)
    assert found[:, 0].tolist() == found[:, 1].tolist()
    assert found[:15].abs().sum() != 0


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_that_wait_for_those_behind_them(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        flags, order = (torch.zeros(41, dtype=torch.int32, device="loom") for _ in range(2))
        kernel("waits_for_the_next")((40,), (1,), (flags, order))
        assert order.tolist() == [*range(39, -1, -1), 40]
    finally:
        torch.set_num_threads(before)

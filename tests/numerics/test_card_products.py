"""Products by Hopper's matrix instructions through cuBLAS, bit for bit as an H100 gave them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from torch_loom.numerics import tensor_core

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
FLOAT8 = {"e4": torch.float8_e4m3fn, "e5": torch.float8_e5m2}
MEASURED = json.loads((Path(__file__).parent / "data" / "card_products.json").read_text(encoding="utf-8"))
SIZES = {f"64x{depth}x64": number for number, depth in enumerate((16, 32, 48, 64, 128, 256, 512, 1024, 2048))}


def operands(m: int, k: int, n: int, seed: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return numbers over 2^(+-4 spread), normal apart from that."""
    draw = np.random.default_rng(seed)

    def numbers(*sizes: int) -> torch.Tensor:
        scales = np.exp2(draw.uniform(-spread * 4, spread * 4, sizes))
        return torch.from_numpy(scales * draw.standard_normal(sizes))

    return numbers(m, k), numbers(k, n)


def digest(result: torch.Tensor) -> str:
    raw = result.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(raw.tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DTYPES)
def test_half_precision(name: str, size: str) -> None:
    m, k, n = map(int, size.split("x"))
    a, b = (each.to(DTYPES[name]).to("loom") for each in operands(m, k, n, SIZES[size], 1.0))
    with tensor_core(chip="h100"):
        assert digest(torch.mm(a, b)) == MEASURED["results"][f"mm/{name}/{size}"]
        sums = torch.mm(a, b, out_dtype=torch.float32)  # type: ignore[call-overload]
    assert digest(sums) == MEASURED["results"][f"mm_f32out/{name}/{size}"]


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize("depth", [16, 64, 512, 4096])
@pytest.mark.parametrize(("left", "right"), [("e4", "e4"), ("e4", "e5"), ("e5", "e4")])
def test_float8(left: str, right: str, depth: int, is_fast: bool) -> None:
    a, b = (each.to(torch.float32) for each in operands(64, depth, 64, depth, 0.4))
    one = torch.ones((), device="loom")
    x, y = a.to(FLOAT8[left]).to("loom"), b.to(FLOAT8[right]).t().contiguous().t().to("loom")
    with tensor_core(chip="h100"):
        sums = torch._scaled_mm(x, y, one, one, out_dtype=torch.float32, use_fast_accum=is_fast)
    name = f"fp8/{left}{right}/64x{depth}x64/fast{int(is_fast)}/f32"
    assert digest(sums) == MEASURED["results"][name]


@pytest.mark.long
@pytest.mark.parametrize(
    "size",
    ["16x3072x16", "16x8192x16", "64x16384x64", "8x4096x1024", "128x8192x256", "512x8192x512", "1x8192x4096"],
)
@pytest.mark.parametrize("name", DTYPES)
def test_deep_products_are_split_as_by_the_library(name: str, size: str) -> None:
    """The first eight rows and columns of results whose depth cuBLAS multiplies in parts."""
    m, k, n = map(int, size.split("x"))
    draw = np.random.default_rng(m * 1000003 + n * 1009 + k * 7)
    a = torch.from_numpy(draw.standard_normal((m, k), dtype=np.float32)).to(DTYPES[name]).to("loom")
    b = torch.from_numpy(draw.standard_normal((k, n), dtype=np.float32)).to(DTYPES[name]).to("loom")
    with tensor_core(chip="h100"):
        sums = torch.mm(a, b, out_dtype=torch.float32)[:8, :8]  # type: ignore[call-overload]
    assert digest(sums) == MEASURED["results"][f"deep/{name}/{m}x{n}x{k}"]

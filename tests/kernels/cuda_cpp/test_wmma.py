"""Products of a warp's small matrices, against torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "wmma.cu").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize(
    ("types", "factors", "sums", "warps"),
    [
        ("__half, float, 16, 16, 16", torch.float16, torch.float32, 4),
        ("__half, float, 8, 32, 16", torch.float16, torch.float32, 4),
        ("__half, float, 32, 8, 16", torch.float16, torch.float32, 4),
        ("__half, __half, 16, 16, 16", torch.float16, torch.float16, 4),
        ("__nv_bfloat16, float, 16, 16, 16", torch.bfloat16, torch.float32, 4),
        ("nvcuda::wmma::precision::tf32, float, 16, 16, 8", torch.float32, torch.float32, 4),
        ("signed char, int, 16, 16, 16", torch.int8, torch.int32, 4),
        ("double, double, 8, 8, 4", torch.float64, torch.float64, 16),
    ],
)
def test_products(types: str, factors: torch.dtype, sums: torch.dtype, warps: int) -> None:
    torch.manual_seed(0)
    a, b, c = (
        torch.randint(-60, 60, size).to(dtype)
        for size, dtype in (((32, 48), factors), ((32, 48), factors), ((32, 32), sums))
    )
    d = torch.zeros(32, 32, dtype=sums, device="loom")
    if factors.is_floating_point:
        # Ten bits of fraction at most, so that no factor is rounded.
        a, b = a / 64, b / 64
    kernel = loom._compile_kernel(SOURCE, f"multiply<{types}>")
    kernel((1,), (32 * warps,), (a.to("loom"), b.to("loom"), c.to("loom"), d, 48))
    near = 4e-3 if sums is torch.float16 else 1e-6
    expected = a.double() @ b.double().T + c.double()
    torch.testing.assert_close(d.cpu().double(), expected, rtol=near, atol=near)

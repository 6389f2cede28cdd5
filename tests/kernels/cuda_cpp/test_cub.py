"""Kernels in the style of published libraries, against the same in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "libraries.cu").read_text(encoding="utf-8")


def kernel(name: str) -> Callable[..., Any]:
    return loom._compile_kernel(SOURCE, name)


@pytest.mark.parametrize("length", [256, 300])
def test_selective_scan(length: int) -> None:
    torch.manual_seed(0)
    a, b = torch.rand(3, length), torch.randn(3, length)
    out = torch.zeros(3, length, device="loom")
    kernel("selective_scan")((3,), (32,), (a.to("loom"), b.to("loom"), out, length), shared_mem=4096)
    h, steps = torch.zeros(3), []
    for t in range(length):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    torch.testing.assert_close(out.cpu(), torch.stack(steps, 1))


@pytest.mark.long
@pytest.mark.parametrize("width", [2, 4])
def test_causal_convolution(width: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 5, 512), torch.randn(5, width)
    out = torch.zeros(2, 5, 512, device="loom")
    given = (x.to("loom"), weight.to("loom"), out, 5, 512)
    kernel(f"causal_convolution<{width}>")((10,), (64,), given)
    padded = torch.nn.functional.pad(x, (width - 1, 0))
    expected = torch.nn.functional.conv1d(padded, weight[:, None], groups=5)
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.long
def test_rasteriser_of_tiles() -> None:
    torch.manual_seed(0)
    count, width, height = 400, 40, 24
    centers = torch.rand(count, 2) * torch.tensor([float(width), float(height)])
    colors, widths = torch.rand(count, 4), torch.rand(count) * 3 + 1
    image = torch.zeros(height, width, 4, device="loom")
    given = (centers.to("loom"), colors.to("loom"), widths.to("loom"), image, count, width, height)
    kernel("rasterise")((3, 2), (16, 16), given)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    through, sums = torch.ones(height, width), torch.zeros(height, width, 3)
    for center, color, scale in zip(centers, colors, widths, strict=True):
        away = (center[0] - x) ** 2 + (center[1] - y) ** 2
        alpha = (color[3] * (-away / (2 * scale * scale)).exp()).clamp(max=0.99)
        alpha = torch.where((alpha < 1 / 255) | (through < 1e-4), 0.0, alpha)
        sums += color[:3] * (alpha * through)[..., None]
        through = through * (1 - alpha)
    torch.testing.assert_close(image.cpu(), torch.cat([sums, through[..., None]], 2), atol=1e-4, rtol=1e-3)


@pytest.mark.long
def test_reductions_and_prefix_sums() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 500), torch.zeros(4, 2, device="loom")
    kernel("reductions")((4,), (128,), (x.to("loom"), y, 500))
    parts = torch.nn.functional.pad(x, (0, 12)).view(4, 4, 128).sum(1)
    torch.testing.assert_close(y.cpu(), torch.stack([x.sum(1), parts[:, :32].amax(1)], 1))
    z = torch.randint(-9, 9, (2, 192), dtype=torch.int32)
    sums = torch.zeros(2, 192, dtype=torch.int32, device="loom")
    kernel("prefix_sums")((2,), (64,), (z.to("loom"), sums))
    assert torch.equal(sums.cpu(), (z.cumsum(1) - z).int())


@pytest.mark.long
def test_rows_of_a_block_that_a_warp_scans() -> None:
    x, y = torch.arange(128.0), torch.zeros(128, device="loom")
    kernel("sums_behind")((1,), (128,), (x.to("loom"), y))
    assert torch.equal(y.cpu(), x.sum() - x.cumsum(0))

"""Which kernels a convolution becomes, against the names of those that ran; how source files order sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torch_loom import chips
from torch_loom.chips.cost import Op, Tensor, sweep
from torch_loom.chips.cost.formulas import algorithm
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.rates import model

DATA = Path(__file__).parent / "data"
CONVOLUTIONS: list[dict[str, Any]] = json.loads((DATA / "neusight_convolutions.json").read_bytes())["rows"]


def test_the_class_of_convolutions_is_the_one_that_ran() -> None:
    models = {name: model(chips.load(name)) for name in ("t4", "v100_pcie")}
    right = 0
    for row in CONVOLUTIONS:
        own = models[row["chip"]]
        (kernel,) = lower(sweep.describe("conv2d", row["shape"], "float32"))
        found = algorithm(kernel, own.coefficients[kernel.family], own.rates)
        right += found.partition(" ")[0] == row["kernels"]
    assert len(CONVOLUTIONS) > 90
    assert right / len(CONVOLUTIONS) >= 0.85


def families(op: str, row: dict[str, Any], shape: list[int]) -> list[str]:
    given = sweep.Row("float16", tuple(shape), **row)
    return [kernel.family for kernel in lower(sweep.OPS[op][1](given))]


@pytest.mark.parametrize(
    ("op", "shape", "layout", "expected"),
    [
        ("conv2d", [8, 64, 28, 64, 3, 1], "nchw", ["layout"] * 3 + ["convolution"]),
        ("conv2d", [8, 64, 28, 64, 3, 1], "nhwc", ["convolution"]),
        ("conv2d", [8, 3, 28, 64, 3, 1], "nhwc", ["convolution_few"]),
        ("conv2d", [8, 64, 28, 64, 1, 1], "nchw", ["convolution"]),
        ("conv2d_dgrad", [8, 64, 28, 64, 3, 1], "nhwc", ["convolution_dgrad"]),
        ("conv2d_wgrad", [8, 64, 28, 64, 3, 1], "nhwc", ["convolution_wgrad"]),
        ("depthwise", [8, 64, 28, 3, 1], "nchw", ["depthwise_convolution"]),
        ("depthwise", [8, 64, 28, 3, 1], "nhwc", ["depthwise_last"]),
        ("depthwise_dgrad", [8, 64, 28, 3, 1], "nhwc", ["depthwise_last_dgrad"]),
        ("depthwise_wgrad", [8, 64, 28, 3, 1], "nchw", ["depthwise_wgrad"]),
    ],
)
def test_classes_by_window_and_layout(op: str, shape: list[int], layout: str, expected: list[str]) -> None:
    assert families(op, {"layout": layout}, shape) == expected


def test_alignment_is_graded() -> None:
    def alignment(k: int) -> int:
        left, right, out = (Tensor.dense("float16", *sizes) for sizes in ((64, k), (k, 384), (64, 384)))
        (kernel,) = lower(Op("mm", (left, right), (out,)))
        return kernel.alignment

    assert [alignment(k) for k in (192, 196, 198, 197)] == [16, 8, 4, 2]


def test_sizes_of_products_in_neusight_files(tmp_path: Path) -> None:
    row = {"op": "bmm", "shape": [27, 20, 144, 794], "dtype": "float32", "device_ms": 0.24}
    path = tmp_path / "sweep.json"
    shapes = []
    for source in ("https://github.com/sitar-lab/NeuSight scripts", "elsewhere"):
        path.write_text(json.dumps({"source": source, "ops": [row]}), encoding="utf-8")
        (case,) = sweep.read(path)
        (kernel,) = case.kernels
        shapes.append((kernel.batch, kernel.m, kernel.n, kernel.k))
    assert shapes == [(27, 20, 144, 794), (27, 20, 794, 144)]

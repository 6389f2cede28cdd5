"""Which kernels a convolution becomes, against the names of those that ran; how source files order sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torch_loom import chips
from torch_loom.chips.cost import Op, Tensor, calibration, sweep
from torch_loom.chips.cost.formulas import BATCHED, FUSED, IMPLICIT, algorithm
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.rates import model
from torch_loom.errors import ChipError

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


def written(path: Path, rows: list[dict[str, Any]], **header: str) -> Path:
    path.write_text(json.dumps({**header, "ops": rows}), encoding="utf-8")
    return path


def test_half_of_the_least_floor_was_beside_the_kernels(tmp_path: Path) -> None:
    rows = [
        {"op": "add", "shape": [1 << 24], "dtype": "float32", "ms": 0.13, "device_ms": 0.10},
        {"op": "gelu", "shape": [1 << 24], "dtype": "float32", "ms": 0.15, "device_ms": 0.11},
    ]
    as_they_are = sweep.read(written(tmp_path / "plain.json", rows))
    assert [case.device_ns for case in as_they_are] == [100_000.0, 110_000.0]
    floored = written(tmp_path / "floored.json", rows, measured="device_ms: ms less the floor")
    assert [case.device_ns for case in sweep.read(floored)] == pytest.approx([115_000.0, 125_000.0])


def test_a_floored_row_without_its_whole_time_is_refused(tmp_path: Path) -> None:
    row = {"op": "add", "shape": [8], "dtype": "float32", "device_ms": 0.1}
    with pytest.raises(ChipError, match=r"ops\[0\]: ms = None"):
        sweep.read(written(tmp_path / "sweep.json", [row], measured="ms less the floor"))


def test_cudnn_7_takes_half_images_as_they_lie(tmp_path: Path) -> None:
    row = {"op": "conv2d", "shape": [8, 64, 28, 64, 3, 1], "dtype": "float16", "device_ms": 0.1}
    found = {}
    for number, version in enumerate(("cuDNN 7.6.2", "cuDNN 8.9.2")):
        (case,) = sweep.read(written(tmp_path / f"{number}.json", [row], torch=version))
        found[version] = [kernel.family for kernel in case.kernels]
    assert found == {
        "cuDNN 7.6.2": ["convolution"],
        "cuDNN 8.9.2": ["layout", "layout", "layout", "convolution"],
    }


def test_a_fit_takes_convolutions_by_what_ran(tmp_path: Path) -> None:
    def row(channels: int, **names: str) -> dict[str, Any]:
        shape = [8, channels, 28, 64, 3, 1]
        return {"op": "conv2d", "shape": shape, "dtype": "float32", "device_ms": 0.1, **names}

    rows = [
        row(64, kernels="winograd_nonfused::data4x4;volta_sgemm_64x64_nn"),
        row(64, algo="WINOGRAD"),
        row(16, algo="IMPLICIT_GEMM"),
        row(64, algo="IMPLICIT_GEMM"),  # of another class than it is given
        row(64),
    ]
    cases = sweep.read(written(tmp_path / "sweep.json", rows))
    assert [case.ran for case in cases] == [BATCHED, FUSED, IMPLICIT, IMPLICIT, ""]
    told = calibration.timings(cases, as_ran=True)
    assert [kernel.items for timing in told for kernel in timing.kernels] == [3.0, 2.0, 1.0, 0.0]
    own = model(chips.load("v100"))
    batched, fused, _, either = (own.total_ns(timing.kernels) for timing in told)
    assert either == pytest.approx(min(batched, fused))
    assert batched != fused

"""Which kernels a convolution becomes, against the names of those that ran; how source files order sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torch_loom import chips
from torch_loom.chips.cost import Op, Tensor, calibration, sweep
from torch_loom.chips.cost.calls import in_tf32
from torch_loom.chips.cost.formulas import BATCHED, FUSED, IMPLICIT, algorithm
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.rates import model
from torch_loom.errors import ChipError

DATA = Path(__file__).parent / "data"
CONVOLUTIONS: list[dict[str, Any]] = json.loads((DATA / "neusight_convolutions.json").read_bytes())["rows"]


def test_what_is_of_float32_runs_on_matrix_units_in_tf32() -> None:
    for op, shape, family in (
        ("conv2d", [8, 64, 28, 64, 3, 1], "convolution_tf32"),
        ("mm", [8, 64, 28], "matmul"),
    ):
        kernel = lower(in_tf32(sweep.describe(op, shape, "float32")))[-1]
        assert (kernel.family, kernel.dtype, kernel.item_bytes) == (family, "tf32", 4)
        narrow = sweep.describe(op, shape, "float16")
        assert in_tf32(narrow) == narrow


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


def families(op: str, row: dict[str, Any], shape: list[int], dtype: str = "float16") -> list[str]:
    given = sweep.Row(dtype, tuple(shape), **row)
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


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "layout", "expected"),
    [
        # As the names of kernels say that an H100 and an H200 ran.
        ("conv2d", [8, 64, 28, 64, 3, 1], "tf32", "nchw", ["layout"] * 3 + ["convolution_tf32"]),
        ("conv2d", [8, 64, 28, 64, 1, 1], "tf32", "nchw", ["convolution_tf32"]),
        ("conv2d", [8, 64, 28, 64, 1, 2], "float16", "nchw", ["layout"] * 2 + ["convolution"]),
        ("conv2d_dgrad", [8, 64, 28, 64, 3, 1], "tf32", "nhwc", ["convolution_dgrad_tf32"]),
        ("conv2d", [8, 64, 28, 64, 3, 1], "float32", "nchw", ["convolution_vector"]),
        ("conv2d", [8, 64, 28, 64, 3, 1], "float32", "nhwc", ["layout"] * 3 + ["convolution_vector"]),
        ("conv2d", [8, 64, 28, 64, 1, 1], "float32", "nhwc", ["layout"] * 2 + ["convolution_vector"]),
        ("conv2d_wgrad", [8, 64, 28, 64, 3, 1], "float32", "nhwc", ["convolution_wgrad_vector"]),
        ("conv2d", [8, 64, 14, 64, 1, 1], "bfloat16", "nchw", ["convolution"]),
        ("conv2d", [8, 64, 7, 64, 1, 1], "bfloat16", "nchw", ["layout"] * 2 + ["convolution"]),
        ("conv2d", [8, 3, 224, 64, 7, 2], "bfloat16", "nchw", ["layout"] * 3 + ["convolution_few"]),
        ("conv2d", [8, 3, 224, 32, 3, 2], "bfloat16", "nchw", ["convolution_few"]),
        ("batch_norm", [8, 64, 28], "float16", "nchw", ["batch_norm"]),
        ("batch_norm_inference", [8, 64, 28], "float16", "nchw", ["batch_norm_inference"]),
        (
            *("batch_norm_inference", [8, 64, 28], "bfloat16", "nchw"),
            ["elementwise_heavy", "batch_norm_inference_own"],
        ),
        ("batch_norm", [8, 64, 28], "bfloat16", "nchw", ["batch_norm_own"]),
        ("batch_norm", [8, 64, 28], "bfloat16", "nhwc", ["batch_norm_last"]),
        ("batch_norm_backward", [8, 64, 28], "bfloat16", "nchw", ["batch_norm_backward_own"]),
    ],
)
def test_classes_by_dtype(op: str, shape: list[int], dtype: str, layout: str, expected: list[str]) -> None:
    assert families(op, {"layout": layout}, shape, dtype) == expected


def test_means_of_half_precision_are_converted_first() -> None:
    source, scale = Tensor.dense("float16", 8, 64, 28, 28), Tensor.dense("float16", 64)
    found = lower(Op("native_batch_norm", (source, *(scale,) * 4), (source,), {"training": False}))
    expected = ["elementwise_heavy", "elementwise", "batch_norm_inference_own"]
    assert [kernel.family for kernel in found] == expected


def test_a_channel_is_normalised_by_one_core() -> None:
    own = model(chips.load("h200"))

    def took(*shape: int) -> float:
        source, scale = Tensor.dense("float32", *shape), Tensor.dense("float32", shape[1])
        return own.total_ns(lower(Op("native_batch_norm", (source, *(scale,) * 4), (source,))))

    # As many elements in fewer channels than there are cores, so that most of them have nothing to do.
    assert took(32, 16, 112, 112) > 1.8 * took(32, 256, 28, 28)


def test_groups_are_rows_of_a_group_norm() -> None:
    source, scale = Tensor.dense("float32", 8, 64, 28, 28), Tensor.dense("float32", 64)
    mean = Tensor.dense("float32", 8, 32)
    op = Op("native_group_norm", (source, scale, scale), (source, mean, mean), {"group": 32})
    (kernel,) = lower(op)
    assert (kernel.family, kernel.rows, kernel.columns) == ("group_norm", 8 * 32, 2 * 28 * 28)
    operands = (source, source, mean, mean, scale)
    (back,) = lower(Op("native_group_norm_backward", operands, (source, scale, scale), {"group": 32}))
    assert (back.family, back.rows, back.columns) == ("group_norm_backward", 8 * 32, 2 * 28 * 28)


def test_attention_with_a_mask_and_groups_of_channels_have_curves_of_their_own() -> None:
    query, mask = Tensor.dense("float16", 8, 12, 64, 32), Tensor.dense("float16", 8, 12, 64, 64)
    name = "_scaled_dot_product_efficient_attention"
    assert lower(Op(name, (query,) * 3, (query,)))[0].family == "attention"
    assert lower(Op(name, (query, query, query, mask), (query,)))[0].family == "attention_masked"
    assert families("conv2d", {"layout": "nhwc", "groups": 4}, [8, 64, 28, 64, 3, 1]) == [
        "convolution_grouped"
    ]
    assert families("depthwise_wgrad", {"layout": "nhwc"}, [8, 64, 28, 7, 1], "float32") == [
        "depthwise_last_wgrad_direct"
    ]


def test_a_window_of_a_pooling_is_no_larger_than_its_image() -> None:
    source, result = Tensor.dense("float32", 8, 64, 7, 7), Tensor.dense("float32", 8, 64, 1, 1)
    (forward,) = lower(Op("avg_pool2d", (source,), (result,), {"kernel_size": [1280, 1280]}))
    assert forward.items == 8 * 64 * 49
    (back,) = lower(Op("avg_pool2d_backward", (result, source), (source,), {"kernel_size": [1280, 1280]}))
    assert back.items == 8 * 64 * 49


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

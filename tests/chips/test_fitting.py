"""Fitting: known coefficients are found again, sweeps are read strictly, held-out parts are even."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torch_loom import chips
from torch_loom.chips.cost import CostModel, calibration, sweep
from torch_loom.chips.cost.families import GRADES, defaults
from torch_loom.chips.cost.fit import Timing, fit, folds, free_coefficients
from torch_loom.chips.fitted import described
from torch_loom.chips.rates import efficiency, rates
from torch_loom.chips.writer import to_toml
from torch_loom.errors import ChipError

H200 = chips.load("h200")
RATES = rates(H200)
SIZES = [256, 65_536, 1 << 20, 1 << 22, 1 << 24, 1 << 26]


def row(op: str, shape: list[int], dtype: str = "float32", took: float = 1.0) -> dict[str, Any]:
    return {"op": op, "shape": shape, "dtype": dtype, "device_ms": took}


def written(folder: Path, content: object) -> Path:
    path = folder / "sweep.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def synthetic(folder: Path, model: CostModel) -> Path:
    """Write a sweep whose times are the model's."""
    rows = []
    for op in ("add", "gelu", "copy"):
        for size in SIZES:
            kernels = sweep.lower(sweep.describe(op, [size], "float32"))
            rows.append(row(op, [size], took=model.total_ns(kernels) * 1e-6))
    return written(folder, {"ops": rows})


def test_known_coefficients_are_found_again(tmp_path: Path) -> None:
    truth = CostModel(RATES, {"elementwise_heavy": {**defaults("elementwise_heavy"), "item_cycles": 3.0}})
    cases = sweep.read(synthetic(tmp_path, truth))
    found = calibration.calibrate(calibration.timings(cases), RATES._replace(dram_bytes_per_ns=3000.0))
    assert found.rates.dram_bytes_per_ns == pytest.approx(RATES.dram_bytes_per_ns, rel=0.02)
    assert found.coefficients["elementwise_heavy"]["item_cycles"] == pytest.approx(3.0, rel=0.03)
    again = CostModel(*found)
    for case in cases:
        assert again.total_ns(case.kernels) == pytest.approx(case.device_ns, rel=0.03), case.name


def test_no_cache_is_faster_than_the_cores_that_read_it(tmp_path: Path) -> None:
    most = RATES.max_cache_bytes_per_ns
    cases = sweep.read(synthetic(tmp_path, CostModel(RATES._replace(cache_bytes_per_ns=3 * most))))
    found = calibration.memory_rates(calibration.timings(cases), RATES, RATES.dram_bytes_per_ns / 0.9)
    assert 0.5 * most < found.cache_bytes_per_ns <= most


def test_held_out_predictions_do_not_see_the_case(tmp_path: Path) -> None:
    path = synthetic(tmp_path, CostModel(RATES))
    cases = sweep.read(path)
    spoilt = [
        case._replace(device_ns=case.device_ns * 50) if i == 4 else case for i, case in enumerate(cases)
    ]
    groups = [case.op for case in cases]
    clean, other = (calibration.held_out(each, RATES, groups, starts=1) for each in (cases, spoilt))
    # The spoilt timing is predicted as if it were whole.
    assert other[4] == pytest.approx(clean[4], rel=1e-6)
    assert clean[4] == pytest.approx(cases[4].device_ns, rel=0.05)


def test_an_outlier_does_not_bend_the_curve() -> None:
    model = CostModel(RATES)
    kernels = [
        sweep.lower(sweep.describe("transpose_copy", [n, 512], "float32")) for n in (64, 512, 4096, 8192)
    ]
    timings = [Timing(str(i), {each[0]: 1}, model.total_ns(each)) for i, each in enumerate(kernels)]
    timings.append(timings[2]._replace(took_ns=timings[2].took_ns * 3))
    found = fit(timings, RATES, free_coefficients(["copy_transposed"]), starts=2)
    assert found["copy_transposed"]["item_cycles"] == pytest.approx(
        defaults("copy_transposed")["item_cycles"], rel=0.2
    )


def test_fits_are_the_same_every_time(tmp_path: Path) -> None:
    timings = calibration.timings(sweep.read(synthetic(tmp_path, CostModel(RATES))))
    assert calibration.calibrate(timings, RATES, starts=2) == calibration.calibrate(timings, RATES, starts=2)


def test_parts_are_even() -> None:
    numbers = folds(["a"] * 12 + ["b"] * 5, 5)
    assert np.array_equal(numbers, folds(["a"] * 12 + ["b"] * 5, 5))
    assert sorted(np.bincount(numbers[:12])) == [2, 2, 2, 3, 3]
    assert sorted(numbers[12:]) == [0, 1, 2, 3, 4]


VECTOR, ROWS, CONVOLUTION = [64], [8, 16], [1, 8, 8, 8, 3, 1]
SHAPES: dict[str, list[int]] = {
    "mm": [8, 16, 8],
    "linear": [8, 16, 8],
    "bmm": [2, 8, 16, 8],
    **{op: [1, 8, 8, 8, 3, 1] for op in ("conv2d", "conv2d_dgrad", "conv2d_wgrad")},
    **{op: [1, 8, 8, 3, 1] for op in ("depthwise", "depthwise_dgrad", "depthwise_wgrad")},
    **{op: [1, 8, 8] for op in ("max_pool2d", "batch_norm", "batch_norm_inference", "batch_norm_backward")},
    **{op: [1, 2, 8, 8] for op in ("sdpa", "sdpa_backward")},
    "embedding": [100, 8, 4],
    **{op: [64] for op in ("add", "mul_scalar", "gelu", "relu_", "copy", "sum")},
    **{op: [64] for op in ("mul", "div", "relu", "tanh")},
    **dict.fromkeys(("sum_dim", "softmax", "layer_norm", "transpose_copy"), ROWS),
    **dict.fromkeys(("h2d_pageable", "h2d_pinned", "d2h_pageable", "d2h_pinned"), VECTOR),
}


@pytest.mark.parametrize(("op", "shape"), SHAPES.items())
def test_every_op_of_a_sweep_is_read(tmp_path: Path, op: str, shape: list[int]) -> None:
    (case,) = sweep.read(written(tmp_path, {"ops": [row(op, shape, took=0.5)]}))
    assert (case.op, list(case.shape), case.device_ns) == (op, shape, 0.5e6)
    assert case.kernels


def test_geometry_and_layout_of_a_convolution(tmp_path: Path) -> None:
    keys = {"hw": [161, 700], "rs": [5, 20], "pad": [0, 0], "stride": [2, 2], "layout": "nhwc"}
    (case,) = sweep.read(written(tmp_path, {"ops": [{**row("conv2d", [4, 1, 161, 32, 5, 2]), **keys}]}))
    (kernel,) = case.kernels
    assert (kernel.m, kernel.n, kernel.k) == (4 * 79 * 341, 32, 100)


@pytest.mark.parametrize(
    ("layout", "alignment", "is_inner"),
    [("", 2, False), ("NN", 8, False), ("TN", 8, True), ("NT", 2, False), ("TT", 2, False)],
)
def test_how_operands_of_a_product_lie(tmp_path: Path, layout: str, alignment: int, is_inner: bool) -> None:
    # As cuBLAS has it, column by column: T of the first and N of the second lie along the inner dimension.
    keys = {"layout": layout} if layout else {}
    (case,) = sweep.read(written(tmp_path, {"ops": [{**row("mm", [36, 64, 7], "float16"), **keys}]}))
    (kernel,) = case.kernels
    assert (kernel.alignment, bool(kernel.items)) == (alignment, is_inner)


def test_no_worse_alignment_is_faster() -> None:
    """One grade has the times of a better one: both get what fits them best together."""
    model = CostModel(RATES)
    kernel = sweep.lower(sweep.describe("mm", [4096, 4096, 4096], "float16"))[0]
    took = {16: 1.0, 8: 3.0, 4: 6.0, 2: 4.0}
    alone = model.total_ns([kernel])
    timings = [
        Timing(f"{grade} {size}", {each: 1}, model.total_ns([each]) * factor)
        for grade, factor in took.items()
        for size in (4096, 6144, 8192)
        for each in [kernel._replace(m=size, alignment=16)]
    ]
    timings = [
        each._replace(kernels={next(iter(each.kernels))._replace(alignment=int(each.name.split()[0])): 1})
        for each in timings
    ]
    assert alone > 0
    found = fit(timings, RATES, [("matmul", name) for name in GRADES], starts=1)["matmul"]
    assert found["unaligned_8"] < found["unaligned_4"] <= found["unaligned_2"]
    assert 3.5 < found["unaligned_4"] < 6.5


def test_the_other_half_is_half() -> None:
    fitted = [sweep.is_fitted(f"row {number}") for number in range(400)]
    assert fitted == [sweep.is_fitted(f"row {number}") for number in range(400)]
    assert 160 < sum(fitted) < 240


def test_the_list_of_ops_is_complete() -> None:
    assert set(sweep.OPS) == set(SHAPES)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([], "not a sweep"),
        ({}, "not a sweep"),
        ({"ops": []}, "not a sweep"),
        ({"ops": [3]}, r"ops\[0\]: must be an object, got int"),
        ({"ops": [row("addd", [4])]}, "unknown op 'addd'. Allowed: mm"),
        ({"ops": [row("add", [4], "float12")]}, "unknown dtype 'float12'"),
        ({"ops": [row("add", [4, 4])]}, "Allowed: 1 whole numbers"),
        ({"ops": [row("add", [0])]}, "Allowed: 1 whole numbers"),
        ({"ops": [row("add", [True])]}, "Allowed: 1 whole numbers"),
        ({"ops": [row("add", [1 << 41])]}, "Allowed: 1 whole numbers"),
        ({"ops": [row("add", [4], took=0.0)]}, "milliseconds, above 0"),
        ({"ops": [row("add", [4], took=float("nan"))]}, "milliseconds, above 0"),
        ({"ops": [row("add", [4], took=float("inf"))]}, "milliseconds, above 0"),
        ({"ops": [{"op": "add", "shape": [4], "dtype": "float32"}]}, "device_ms = None"),
        ({"ops": [{**row("conv2d", CONVOLUTION), "rs": [3]}]}, r"rs = \[3\]. Allowed: 2 whole numbers, 1 or"),
        (
            {"ops": [{**row("conv2d", CONVOLUTION), "pad": -1}]},
            "pad = .* Allowed: 2 whole numbers, 0 or more",
        ),
        ({"ops": [{**row("conv2d", CONVOLUTION), "groups": 0}]}, "groups = 0"),
        ({"ops": [{**row("conv2d", CONVOLUTION), "layout": "nwch"}]}, "layout = 'nwch'. Allowed: NN"),
    ],
)
def test_a_bad_sweep_is_one_clear_error(tmp_path: Path, content: object, complaint: str) -> None:
    with pytest.raises(ChipError, match=complaint):
        sweep.read(written(tmp_path, content))


def test_what_is_no_sweep_file(tmp_path: Path) -> None:
    with pytest.raises(ChipError, match="no such file"):
        sweep.read(tmp_path / "missing.json")
    path = tmp_path / "sweep.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ChipError, match="not a JSON file"):
        sweep.read(path)


def test_a_fitted_description_is_read_again(tmp_path: Path) -> None:
    found = calibration.Calibration(RATES._replace(dram_bytes_per_ns=4000.0), {"copy": defaults("copy")})
    chip = described(H200, found, "a test")
    path = tmp_path / "own.toml"
    path.write_text(to_toml(chip, "two\nlines"), encoding="utf-8")
    again = chips.load(path)
    assert again == chip
    assert efficiency(again)["copy"] == defaults("copy")
    assert rates(again).dram_bytes_per_ns == pytest.approx(4000.0, rel=1e-4)
    assert again.sources["efficiency"] == "a test"


@pytest.mark.parametrize("name", chips.available())
def test_a_written_description_is_the_same_chip(tmp_path: Path, name: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(to_toml(chips.load(name)), encoding="utf-8")
    assert chips.load(path) == chips.load(name)


def test_efficiency_of_another_chip() -> None:
    borrowed = dataclasses.replace(
        chips.load("loom1"), efficiency_of="h200", efficiency={"copy": {"start_ns": 5.0}}
    )
    found = efficiency(borrowed)
    assert found["copy"]["start_ns"] == 5.0
    assert found["matmul"] == efficiency(H200)["matmul"]

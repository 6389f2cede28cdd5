"""The clock benchmark: its last line, what it says of a bad file, and the ops that it traces."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import clock_error, clock_truth, traced_ops
from torch_loom import chips
from torch_loom.chips.cost import sweep
from torch_loom.chips.rates import model

STEP = {"model": "gpt2", "dtype": "float32", "mode": "infer", "shape": [1, 16], "kernel_ms": 2.0}


def written(folder: Path, content: object) -> str:
    path = folder / "data.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


@pytest.mark.long
def test_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = model(chips.load("h200"))
    rows = []
    for power in range(8, 27):
        kernels = sweep.lower(sweep.describe("add", [1 << power], "float32"))
        took = truth.total_ns(kernels) * 1e-6
        rows.append({"op": "add", "shape": [1 << power], "dtype": "float32", "device_ms": took})
    assert clock_error.main([written(tmp_path, {"ops": rows})]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("mean device-time error ")
    assert " over 19 cases, worst " in last
    assert float(last.split()[3].rstrip("%")) < 3
    assert clock_error.main([written(tmp_path, {"ops": rows}), "--by-shape"]) == 0


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([], "must be a list of model steps"),
        ([3], "row 0: must be an object"),
        ([{**STEP, "model": "gpt9"}], "model must be one of bert-base"),
        ([{**STEP, "mode": "dream"}], "mode must be of"),
        ([{**STEP, "dtype": "int8"}], "mode must be of"),
        ([{**STEP, "shape": [1]}], "two whole numbers above 0"),
        ([{**STEP, "shape": [0, 1]}], "two whole numbers above 0"),
        ([{**STEP, "kernel_ms": 0}], "kernel_ms must be a number above 0"),
        ([{**STEP, "kernel_ms": float("nan")}], "kernel_ms must be a number above 0"),
        ({"ops": []}, "not a sweep"),
    ],
)
def test_a_bad_file_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, complaint: str
) -> None:
    assert clock_error.main([written(tmp_path, content)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_file_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clock_error.main([str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def names(program: Any) -> list[str]:
    return [op.name for op in traced_ops.trace(program)]


def test_attention_and_dropout_are_one_op_each() -> None:
    q = torch.empty(2, 4, 16, 8, device="meta", requires_grad=True)

    def program() -> None:
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1, is_causal=True)
        torch.nn.functional.dropout(out, 0.1).sum().backward()

    found = Counter(names(program))
    assert found["_scaled_dot_product_efficient_attention"] == 1
    assert found["_scaled_dot_product_efficient_attention_backward"] == 1
    assert found["native_dropout"] == found["native_dropout_backward"] == 1
    assert not found["bmm"] + found["bernoulli_"] + found["_safe_softmax"]


def test_a_mask_that_no_fused_kernel_reads_takes_single_kernels() -> None:
    q = torch.empty(2, 4, 16, 8, device="meta")
    mask = torch.empty(1, 16, 16, 4, device="meta").permute(0, 3, 1, 2)
    found = names(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask))
    assert found.count("bmm") == 2
    assert "_safe_softmax" in found


def test_known_integers_are_read_and_others_are_zero() -> None:
    values: list[object] = []

    def program() -> None:
        ids = torch.arange(10, device="meta") - 1
        values.append(bool((ids[1:] - ids[:-1] == 1).all()))
        values.append(int(torch.empty(3, dtype=torch.long, device="meta").sum()))

    traced_ops.trace(program)
    assert values == [True, 0] * 2


def test_views_are_left_out_and_lists_keep_their_lengths() -> None:
    a, b = (torch.empty(4, 4, device="meta") for _ in range(2))

    def program() -> None:
        torch._foreach_addcmul_([a, b], [a, b], [a, b])
        a.view(16).t().unsqueeze(0)

    (op,) = traced_ops.trace(program)
    assert (op.name, op.lists, len(op.inputs)) == ("_foreach_addcmul_", (2, 2, 2), 6)


def test_a_grouped_product_is_one_kernel_of_bfloat16_and_else_one_for_each_group() -> None:
    def products(dtype: torch.dtype) -> list[str]:
        rows = torch.empty(64, 16, dtype=dtype, device="meta", requires_grad=True)
        matrices = torch.empty(4, 16, 32, dtype=dtype, device="meta", requires_grad=True)
        ends = torch.empty(4, dtype=torch.int32, device="meta")

        def program() -> None:
            out = torch.nn.functional.grouped_mm(rows, matrices, offs=ends)
            assert (out.shape, out.dtype) == ((64, 32), dtype)
            out.square().sum().backward()

        found = [op.name for op in traced_ops.trace(program) if op.name.endswith("mm")]
        assert (rows.grad.shape, matrices.grad.shape) == (rows.shape, matrices.shape)
        return found

    assert products(torch.float32) == ["mm"] * 12
    assert products(torch.bfloat16) == ["_grouped_mm"] * 3


@pytest.mark.slow
def test_a_model_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="the models come from transformers")
    rows = [
        {**STEP, "shape": [1, 128], "kernel_ms": 2.69},
        {**STEP, "model": "resnet-18", "shape": [32, 224], "kernel_ms": 4.6},
        {
            **STEP,
            "model": "distilbert",
            "dtype": "bfloat16",
            "mode": "train",
            "shape": [16, 128],
            "kernel_ms": 3.34,
        },
    ]
    assert clock_error.main([written(tmp_path, rows), "--families"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.split()[3].rstrip("%")) < 10, last


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = model(chips.load("t4"))
    rows = []
    for size in range(1 << 20, 1 << 21, 1 << 15):
        kernels = sweep.lower(sweep.describe("add", [size], "float32"))
        rows.append({"op": "add", "shape": [size], "dtype": "float32", "ms": truth.total_ns(kernels) * 2e-6})
    inner = tmp_path / "public"
    inner.mkdir()
    written(inner, {"device": "Tesla T4", "ops": rows})
    (inner / "unknown.json").write_text(json.dumps({"device": "Abacus", "ops": rows}), encoding="utf-8")
    assert clock_error.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "unknown.json: no chip stands for 'Abacus'" in out
    assert "| **elementwise** | all | 32 | 50.0% | 50.0% | 3.5% | -50% add [" in out


def test_a_card_that_is_left_out_is_forecast_by_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"op": "mm", "shape": [size] * 3, "dtype": "float32", "ms": 1.0} for size in (512, 1024, 2048)]
    written(tmp_path, {"device": "Tesla T4", "ops": rows})
    assert clock_error.main([str(tmp_path), "--without-card"]) == 0
    out = capsys.readouterr().out
    assert "| family | rows | all | data |" in out
    assert "| **float GEMM** | 3 |" in out
    t4 = chips.load("t4")
    left_out = clock_truth.without_card(t4)
    assert left_out.rates.cores == t4.num_cores
    assert left_out.rates.dram_bytes_per_ns != model(t4).rates.dram_bytes_per_ns
    # Volta comes first of those that are left, and its products do all that its power allows for.
    assert (
        left_out.coefficients["matmul_vector"]["fill"]
        == chips.load("v100").efficiency["matmul_vector"]["fill"]
    )


def test_without_a_sweep_no_card_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clock_error.main([str(tmp_path), "--without-card"]) == 2
    assert "no sweep of ops" in capsys.readouterr().err


def test_an_empty_folder_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clock_error.main([str(tmp_path)]) == 2
    assert "no file of timings" in capsys.readouterr().err

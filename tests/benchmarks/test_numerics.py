"""The benchmark of data formats: what it compares, what it leaves out, and its section of the docs."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from benchmarks import _common, _microxcaling, numerics
from torch_loom.numerics import DataFormat, quantize

RESULT = {
    "conversions": [{"name": "Bfp8_b", "share": 0.91, "target": 0.8, "met": True}],
    "models": [{"name": "forward", "ratio": 1.125, "target": 1.2, "met": True}],
    "microxcaling": [{"name": "MXINT8, Bfp8_b", "ratio": 123.4, "met": True}],
    "differences": [
        {
            "name": "Lf8",
            "elements": 20,
            "instruction_sets": ["baseline", "avx2"],
            "differences": 0,
            "met": True,
        },
        {
            "name": "Bfp8",
            "elements": 10,
            "instruction_sets": ["baseline", "avx2"],
            "differences": 3,
            "met": False,
        },
    ],
}


@pytest.fixture
def stand_in(monkeypatch):
    """`mx` with functions that only record how they were called."""
    calls = []

    def quantize_mx_op(x, specs, elem_format, block_size, axes):
        calls.append((elem_format, block_size, *axes))
        return quantize(x, _microxcaling.PAIRS[elem_format])

    def linear(input, weight, bias=None, mx_specs=None):
        calls.append(mx_specs["bfloat"])
        return input @ weight.T + (0 if bias is None else bias)

    modules = {
        "mx": {},
        "mx.mx_ops": {"quantize_mx_op": quantize_mx_op},
        "mx.linear": {"linear": linear},
        "mx.specs": {"finalize_mx_specs": lambda specs: specs},
    }
    for name, names in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**names))
    return calls


def test_docs_have_every_part():
    text = numerics.docs_body(RESULT)
    for part in ("`Bfp8_b` | 0.91 | ≥ 0.8", "forward | 1.12 | ≤ 1.2", "MXINT8, Bfp8_b | 123.4"):
        assert part in text
    assert "at least 10 elements a format under baseline, avx2: 3." in text
    assert "could not be imported" in numerics.docs_body({**RESULT, "microxcaling": []})


def test_microxcaling_is_left_out_where_it_is_not(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mx", None)
    assert numerics.beside_microxcaling(_common.QUICK, quick=True) == []
    assert "cannot be imported here" in capsys.readouterr().out


def test_microxcaling_has_our_tensors_and_blocks(stand_in):
    peer = _microxcaling.found()
    rows = _microxcaling.conversions(peer, 4096, _common.QUICK)
    assert [row["name"] for row in rows] == ["MXINT8, Bfp8_b", "MXINT4, Bfp4_b", "MXINT2, Bfp2_b"]
    assert all(row["equal"] == 1 for row in rows)
    assert set(stand_in) == {(name, 16, -1) for name in ("int8", "int4", "int2")}
    exact, tokens = torch.nn.Linear(4, 4), torch.randn(2, 4)
    linear = functional.linear
    stand_in.clear()
    row = _microxcaling.forward(peer, exact, lambda: exact(tokens), tokens, _common.QUICK)
    assert row["ratio"] > 0
    assert set(stand_in) == {16}
    assert functional.linear is linear


def test_parts_are_not_written_to_the_docs(capsys):
    with pytest.raises(SystemExit):
        numerics.main(["--only", "models", "--write-docs"])
    assert "leave --only out" in capsys.readouterr().err


@pytest.mark.slow
def test_formats_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(numerics, "COPY_ELEMENTS", 1 << 16)
    assert numerics.main(["--quick", "--only", "conversions", "--json", str(tmp_path / "out.json")]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())["conversions"]
    assert [row["name"] for row in rows] == [fmt.name for fmt in DataFormat if fmt is not DataFormat.Invalid]
    assert all(row["share"] > 0 for row in rows)

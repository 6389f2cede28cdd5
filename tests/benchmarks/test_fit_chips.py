"""Chips out of measurements: a sample gives the same figures every time, within what hardware can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fit_chips
from torch_loom import chips
from torch_loom.chips import description as reader
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.cost import sweep
from torch_loom.chips.cost.model import CostModel
from torch_loom.chips.limits import beyond_limits

SAMPLE = Path(__file__).parent.parent / "chips" / "data" / "neusight_t4_sample.json"
FOUND = SAMPLE.with_name("neusight_t4_sample_fitted.json")


def fitted(folder: Path) -> dict[str, Any]:
    out = folder / "out"
    out.mkdir()
    (folder / "sample.json").write_bytes(SAMPLE.read_bytes())
    assert fit_chips.main([str(folder), "--out", str(out)]) == 0
    assert [path.name for path in out.iterdir()] == ["t4.toml"]
    return reader.tomllib.loads((out / "t4.toml").read_text(encoding="utf-8"))


@pytest.mark.long
def test_a_sample_gives_the_figures_that_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = fitted(tmp_path)
    kept = json.loads(FOUND.read_bytes())
    assert found["dram_share"] == pytest.approx(kept["dram_share"], rel=1e-3)
    assert {family: set(table) for family, table in found["efficiency"].items()} == {
        family: set(table) for family, table in kept["efficiency"].items()
    }
    # Coefficients that make up for each other depend on the last bit of the machine's functions: what counts
    # is what they forecast together.
    rates = chip_rates.rates(chips.load(tmp_path / "out" / "t4.toml"))
    models = [CostModel(rates, figures["efficiency"]) for figures in (found, kept)]
    for case in sweep.read(SAMPLE):
        now, before = (sum(model.time(kernel).total_ns for kernel in case.kernels) for model in models)
        assert now == pytest.approx(before, rel=5e-3), case.name
    out = capsys.readouterr().out
    assert "**float GEMM**" in out
    assert "**elementwise**" in out


@pytest.mark.long
def test_what_is_written_is_a_chip_within_limits(tmp_path: Path) -> None:
    fitted(tmp_path)
    chip = chips.load(tmp_path / "out" / "t4.toml")
    assert beyond_limits(chip) == []
    assert chip.efficiency_of == "h200"
    assert chip.sources["efficiency"].startswith("python -m benchmarks.fit_chips: fitted to half of")
    assert chip.num_cores == chips.load("t4").num_cores


def test_a_bad_file_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"op": "add", "shape": [4], "dtype": "float12", "device_ms": 1.0}
    (tmp_path / "bad.json").write_text(json.dumps({"device": "Tesla T4", "ops": [row]}), encoding="utf-8")
    assert fit_chips.main([str(tmp_path)]) == 2
    assert "unknown dtype" in capsys.readouterr().err

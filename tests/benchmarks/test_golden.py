"""benchmarks.golden over a set of its own: known results, an unknown section, one wrong result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.golden.__main__ import main
from tests.numerics import silicon_reference as reference


def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["golden", str(folder)])
    return main()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    words = random.integers(0, 2, (2, 24, 16)) << 18 | random.integers(120, 134, (2, 24, 16)) << 10
    words |= random.integers(0, 128, (2, 24, 16)) << 3
    a, b = words[:, :16], words[:, 16:]
    wanted = [
        reference.mvmul(0, reference.BF16, False, (0x3F8, 0x3F8), phase, np.repeat(b[matrix], 16, 0),
                        np.tile(a[matrix].T, (8, 1)), np.zeros(128, np.int64))
        for matrix in range(2) for phase in range(2)
    ]  # fmt: skip
    np.savez(
        tmp_path / "tensix_own.npz",
        step_A=a.astype(np.uint32),
        step_B=b.astype(np.uint32),
        step_dst=np.zeros((1, 8, 16), np.uint32),
        step_case=np.array([[m, 0, 5, 5, 0, 0, 0, p] for m in range(2) for p in range(2)], np.uint8),
        step_out_wh=np.concatenate(wanted).astype(np.uint32),
        novel_out_wh=np.zeros(7, np.uint32),
    )
    index = {"sections": {"step": {}}, "counts": {"step/wh": [512, 512], "step/bh": [512, 512]}}
    (tmp_path / "tensix_own.json").write_text(json.dumps(index))
    return tmp_path


def test_sections_are_compared_and_unknown_ones_count_as_not_exact(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, monkeypatch) == 1
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "exact 1024 of 1031"
    assert "NotImplementedError: no rule for this section" in told


def test_a_wrong_result_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(folder / "tensix_own.npz") as arrays:
        changed = {name: array.copy() for name, array in arrays.items() if name != "novel_out_wh"}
    changed["step_out_wh"][3] ^= 1
    np.savez(folder / "tensix_own.npz", **changed)
    assert run(folder, monkeypatch) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "exact 1022 of 1024"


def test_a_folder_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(Path("/nowhere"), monkeypatch)
    assert "/nowhere is no folder" in capsys.readouterr().err

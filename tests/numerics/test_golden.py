"""``python -m benchmarks.golden`` on a part of the golden models' vectors: every one, through the kernels.

The sets in data/golden are parts of larger ones (``python -m tools.numerics_golden``): results of ttsim
1.10.0 (instructions of Tensix) and of MMA-Sim c785138 (GPUs), and a restatement of tt-llk and tt-metal
(functions, host conversion).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.golden import __main__ as golden
from torch_loom.numerics._ops import ops

SETS = Path(__file__).parent / "data" / "golden"
SECTIONS = ("step", "elw", "pool", "pack", "unpack", "sfpu_mad", "sfpu_stoch_rnd1", "sfpu_lut8", "host")


@pytest.mark.long
@pytest.mark.parametrize("kernels", ["baseline", "avx2", "avx512"])
def test_every_vector_is_exact(
    kernels: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not ops._use_kernels(kernels):
        pytest.skip(f"the processor lacks {kernels}")
    monkeypatch.setattr(sys, "argv", ["benchmarks.golden", str(SETS)])
    try:
        assert golden.main() == 0
    finally:
        ops._use_kernels("")
    told = capsys.readouterr().out.splitlines()
    _, exact, _, total = told[-1].split()
    assert exact == total
    assert int(total) > 30_000
    assert {name for name in SECTIONS if any(name in line for line in told)} == set(SECTIONS)
    for name in ("recip_fp32", "gelu_lut", "Hopper/m64n8k32.f32.e4m3.e4m3", "block16.f32.e2m1.e2m1.ue4m3"):
        assert any(name in line for line in told), name


def test_another_result_is_counted(tmp_path: Path) -> None:
    shutil.copy(SETS / "tensix_fn_small.npz", tmp_path / "tensix_fn_small.npz")
    with np.load(SETS / "tensix_fn_small.npz") as arrays:
        changed = {name: value.copy() for name, value in arrays.items()}
    changed["recip_fp32"][7] ^= 1
    np.savez(tmp_path / "tensix_fn_small.npz", **changed)
    found = {result.section: result for _, result in golden.results(tmp_path)}
    assert found["recip_fp32"].exact == found["recip_fp32"].total - 1
    assert all(each.exact == each.total for name, each in found.items() if name != "recip_fp32")

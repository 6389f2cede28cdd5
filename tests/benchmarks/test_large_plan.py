"""The benchmark of a plan that is larger than this machine, with fewer blocks."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_a_sharded_step_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import large_plan  # FSDP takes seconds to import

    assert large_plan.main(["--blocks", "2", "--ranks", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Both embeddings and both blocks in bfloat16, a fourth of each; optimizer state is twice that.
    parameters = 2 * (2 * 128_256 * 8192 + 2 * 855_654_400) / 4 / large_plan.GIB
    found = {line[:16].strip(): float(line.split()[-2]) for line in lines[:6]}
    assert found["parameters"] == pytest.approx(parameters, rel=0.01)
    assert found["optimizer state"] == pytest.approx(2 * parameters, rel=0.01)
    assert lines[-1].startswith("planned in ")

"""benchmarks/pipeline.py runs and prints its figures."""

from __future__ import annotations

import pytest

from benchmarks import pipeline


@pytest.mark.slow
def test_figures_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline.main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *(f"overhead, {number} stages" for number in (1, 2, 4)),
        "two stages for one",
        "a training step of 8 micro-batches",
    ]

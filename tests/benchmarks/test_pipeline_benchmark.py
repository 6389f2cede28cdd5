"""benchmarks/pipeline.py runs and prints its figures."""

from __future__ import annotations

import pytest

from benchmarks import pipeline, pipeline_prediction


@pytest.mark.slow
def test_figures_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline.main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *(f"overhead, {number} stages" for number in (1, 2, 4)),
        "two stages for one",
        "a training step of 8 micro-batches",
        *lines[5:],
    ]
    table = [line.split() for line in lines[6:]]
    assert [row[:2] for row in table] == [[m, n] for m in ("ResNet-50", "BERT-large") for n in "1248"]
    assert all(int(rate) > 0 for _, _, rate in table)


def test_a_model_is_split_where_the_costliest_part_costs_least() -> None:
    assert pipeline_prediction.splits([1, 1, 1, 1], 2) == [2, 4]
    assert pipeline_prediction.splits([5, 1, 1, 1, 2], 2) == [1, 5]
    assert pipeline_prediction.splits([1, 1, 4, 1, 1], 3) == [2, 3, 5]

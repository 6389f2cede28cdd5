"""Predictions of boards beside published rates, from those that were kept, and what PyBuda reached."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import boards, published
from torch_loom.chips import stacks


def test_boards_are_compared_with_published_rates() -> None:
    found = {figure.name: figure for figure in boards.measure(torch.device("cpu"), quick=True)}
    assert set(found) == set(boards.SUBJECT.targets)
    assert all(figure.median <= 0.25 for figure in found.values())
    text = boards.SUBJECT.docs_body(list(found.values()))
    assert "| PyBuda | ResNet-50 | `wh_n150` | Bfp8_b, LoFi | 256 | all | 2,891 |" in text
    assert "| TT-NN | BERT-base | `bh_p150` | Bfp8_b, HiFi2 | 8 | 8 x 6 | 929 |" in text


def test_what_a_stack_reaches_is_what_published_rates_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = stacks.FILE.read_text(encoding="utf-8")
    monkeypatch.setattr(stacks, "FILE", tmp_path / "stacks.json")
    boards.write_stacks()
    assert stacks.FILE.read_text(encoding="utf-8") == product


def test_a_fit_finds_what_rates_were_made_of() -> None:
    true = stacks.Stack(5e-4, {"wormhole_b0": stacks.Reached(2.5, 2e-5)})
    figures = [one for one in published.FIGURES if one.stack == published.PYBUDA and one.board != "gs_e150"]
    chips = [
        boards.Chip("wormhole_b0", one.setting.samples, 1000.0 + 100 * number, number % 7)
        for number, one in enumerate(figures)
    ]
    made = [
        boards.Compared(one._replace(rate=boards.Compared(one, chip).reached(true, 0.8)), chip)
        for one, chip in zip(figures, chips, strict=True)
    ]
    stack, share = boards.fit(made, 5e-4)
    assert share == 0.8
    assert stack.chips["wormhole_b0"] == pytest.approx((2.5, 2e-5))


def test_a_stack_that_nothing_is_known_of_is_named() -> None:
    one = boards.Compared(published.FIGURES[0], boards.Chip("blackhole", 8, 100.0, 2))
    with pytest.raises(ValueError, match="PyBuda: nothing is known of blackhole"):
        one.reached(stacks.Stack(0.0, {}), 1.0)

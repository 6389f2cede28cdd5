"""Predictions of boards beside published rates, from those that were kept, and what PyBuda reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import boards, published
from torch_loom.chips import stacks
from torch_loom.errors import LoomError

# The largest errors of one figure: of the two that contradict an n150's, and of the others.
WORST = {"fitted": 1.5, "tested": 0.8, "other_models": 1.5, "as_predicted": 0.6}


def test_boards_are_compared_with_published_rates() -> None:
    found = {figure.name: figure for figure in boards.measure(torch.device("cpu"), quick=True)}
    assert set(found) == set(boards.SUBJECT.targets) == set(WORST)
    for name, figure in found.items():
        assert figure.median <= (boards.SUBJECT.targets[name].limit or 0.3)
        assert figure.p90 <= WORST[name]
    text = boards.SUBJECT.docs_body(list(found.values()))
    assert "| figure | mean | largest | target |" in text
    assert "| PyBuda | ResNet-50 | `wh_n150` | Bfp8_b, LoFi | 256 | all | 2,891 |" in text
    assert "| TT-NN | BERT-base | `bh_p150` | Bfp8_b, LoFi, in part HiFi2 | 8 | 8 x 6 | 929 |" in text


def test_what_a_stack_reaches_is_what_published_rates_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = stacks.FILE.read_text(encoding="utf-8")
    monkeypatch.setattr(stacks, "FILE", tmp_path / "stacks.json")
    boards.write_stacks()
    assert stacks.FILE.read_text(encoding="utf-8") == product


def test_predictions_of_other_settings_or_of_some_figures_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(boards.KEPT.read_text(encoding="utf-8"))
    monkeypatch.setattr(boards, "KEPT", tmp_path / "boards.json")
    boards.KEPT.write_text(json.dumps(content[1:]))
    with pytest.raises(LoomError, match=f"no prediction of {content[0]['figure']} under its setting"):
        boards.kept()
    content[0]["setting"]["math_fidelity"] = "HiFi4"
    boards.KEPT.write_text(json.dumps(content))
    with pytest.raises(LoomError, match="under its setting: predict again"):
        boards.write_stacks()


def _run_of_two_epochs(samples: int) -> stacks.Run:
    return stacks.Run(samples, samples * 1e-3, 2, 1e-6)


def test_a_stack_takes_longer_for_kernels_epochs_and_samples() -> None:
    stack = stacks.Stack(5e-4, {"wormhole_b0": stacks.OnChip(2.0, 1e-4)})
    rate = stack.samples_per_second("wormhole_b0", _run_of_two_epochs(10))
    assert rate == pytest.approx(10 / (2 * 10e-3 + 2 * 5e-4 + 2 * 10 * 1e-4))
    assert stack.samples_per_second("wormhole_b0", stacks.Run(10, 0.0, 0.0, 0.5)) == pytest.approx(20)
    assert stack.samples_per_second("wormhole_b0", stacks.Run(0, 0.0, 0.0, 0.0)) == 0
    assert stack.samples_per_second("blackhole", _run_of_two_epochs(10)) is None


def test_a_fit_finds_what_rates_were_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates of 2.5 times the work, 0.5 ms for each of two epochs, 20 µs for a sample of each; 0.8 of two."""

    def seconds(samples: int) -> float:
        return 2.5e-3 * samples + 2 * (5e-4 + 2e-5 * samples)

    monkeypatch.setattr(boards, "BY_SAMPLES", {"ResNet-50": {n: n / seconds(n) for n in (64, 256)}})
    made = []
    for figure in published.FIGURES:
        if figure.stack == published.PYBUDA and figure.board != "gs_e150":
            samples = figure.setting.samples
            rate = samples / seconds(samples) * (1 if figure.chips == 1 else 1.6)
            known = figure._replace(samples_per_second=rate)
            made.append(boards.Prediction(known, 1e3, _run_of_two_epochs(samples)))
    stack, share = boards.fit(made)
    assert stack.epoch_seconds == pytest.approx(5e-4)
    assert stack.chips == {"wormhole_b0": pytest.approx((2.5, 2e-5))}
    # Half of the samples are a little slower a sample.
    assert share == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("figures", "says"),
    [([], "two sizes of runs"), (["PyBuda/ResNet-50/wh_n150"], "of one chip and of two")],
)
def test_a_fit_without_the_rates_that_it_needs_is_refused(figures: list[str], says: str) -> None:
    found = [each for each in boards.kept() if each.figure.key in figures]
    with pytest.raises(LoomError, match=says):
        boards.fit(found)


def test_a_chip_that_nothing_is_known_of_is_named() -> None:
    (one,) = (each for each in boards.kept() if each.figure.key == "TT-NN/ResNet-50/bh_p150")
    with pytest.raises(ValueError, match="nothing is known of blackhole"):
        one.reached(stacks.Stack(0.0, {}), 1.0)

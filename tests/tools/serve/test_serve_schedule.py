"""Which request runs when: continuous batching and a loop of batches, with made-up times of steps."""

from __future__ import annotations

import random

import pytest

from torch_loom.errors import ConfigurationError
from torch_loom.tools.serve import schedule
from torch_loom.tools.serve.requests import Request
from torch_loom.tools.serve.schedule import BATCH_TOKENS, BLOCK_TOKENS, Outcome, Step, continuous, loop

CACHE = 1 << 20


class Recorded:
    """Steps that take a second each, noted."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, step: Step) -> float:
        self.steps.append(step)
        return 1.0


def test_requests_join_while_others_decode() -> None:
    steps = Recorded()
    found = continuous([Request(10, 3), Request(20, 2, arrival=0.5)], steps, CACHE)
    # The second arrives in the first step: its prompt runs in the next, beside the first's next token.
    assert steps.steps == [Step(10, 0, 0.0), Step(20, 1, 11.0), Step(0, 2, 16.5)]
    first, second = found.served
    assert (first.started, first.first, first.ended, first.made) == (0.0, 1.0, 3.0, 3)
    assert (second.started, second.first, second.ended, second.made) == (1.0, 2.0, 3.0, 2)
    assert (found.seconds, found.busy_seconds, found.steps) == (3.0, 3.0, 3)
    assert found.peak_tokens == 2 * BLOCK_TOKENS


def test_a_long_prompt_is_cut_and_a_pause_is_waited_for() -> None:
    steps = Recorded()
    found = continuous([Request(BATCH_TOKENS + 5, 1), Request(1, 1, arrival=100.0)], steps, CACHE)
    assert [step.prompt_tokens for step in steps.steps] == [BATCH_TOKENS, 5, 1]
    assert found.served[0].first == 2.0
    assert found.seconds == 101.0
    assert found.busy_seconds == 3.0


def test_the_youngest_gives_way_where_the_cache_runs_out() -> None:
    requests = [Request(BLOCK_TOKENS, 10), Request(BLOCK_TOKENS, 10)]
    found = continuous(requests, Recorded(), 3 * BLOCK_TOKENS)
    first, second = found.served
    assert found.evictions == 1
    assert first.ended < second.ended
    assert [each.made for each in found.served] == [10, 10]
    assert found.peak_tokens <= 3 * BLOCK_TOKENS


def test_prompts_that_block_each_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "SPARE_SHARE", 0.0)
    half = Request(2 * BATCH_TOKENS, 1)
    blocks = 3 * BATCH_TOKENS // BLOCK_TOKENS
    found = continuous(
        [half._replace(prompt_tokens=BATCH_TOKENS + BLOCK_TOKENS), half], Recorded(), blocks * BLOCK_TOKENS
    )
    assert [each.made for each in found.served] == [1, 1]


@pytest.mark.parametrize("seed", range(6))
def test_all_tokens_are_made_and_the_cache_holds(seed: int) -> None:
    chance = random.Random(seed)
    requests = sorted(
        (Request(chance.randint(1, 3000), chance.randint(1, 60), chance.random() * 50) for _ in range(60)),
        key=lambda each: each.arrival,
    )
    room = 20 * BLOCK_TOKENS
    found = continuous(requests, Recorded(), room, most=chance.choice([2, 8, 1024]))
    assert [each.made for each in found.served] == [each.new_tokens for each in requests]
    assert found.peak_tokens <= room
    for each in found.served:
        assert each.started is not None
        assert each.request.arrival <= each.started < each.first <= each.ended <= found.seconds


def test_a_loop_pads_its_batches() -> None:
    steps = Recorded()
    found = loop([Request(10, 3), Request(20, 1), Request(5, 1)], steps, CACHE, most=2)
    assert steps.steps == [Step(40, 0, 0.0), Step(0, 2, 21), Step(0, 2, 22), Step(5, 0, 0.0)]
    assert [each.ended for each in found.served] == [3.0, 1.0, 4.0]
    assert found.peak_tokens == 2 * 23


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"is larger than the cache. Allowed: 512 tokens"):
        continuous([Request(600, 1)], Recorded(), 700)
    with pytest.raises(ConfigurationError, match=r"batch of 2 requests.*smaller --max-batch"):
        loop([Request(300, 100), Request(10, 10)], Recorded(), 700, most=2)


def test_samples_are_thinned() -> None:
    found = Outcome([])
    for number in range(10 * schedule.MAX_SAMPLES):
        found.note(float(number), 1, 0, 1)
    assert schedule.MAX_SAMPLES / 4 < len(found.samples) <= schedule.MAX_SAMPLES
    assert found.steps == 10 * schedule.MAX_SAMPLES

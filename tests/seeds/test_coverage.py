"""Every sentence of seeds 000 and 003 and every row of seed 002 has a test, and no test names another."""

from __future__ import annotations

import pytest

from tests.seeds.coverage import marks, sentences


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_every_sentence_has_a_test(seed: int) -> None:
    marked = marks()[seed]
    assert [f"{key}: {text}" for key, text in sentences(seed).items() if key not in marked] == []
    assert sorted(marked.keys() - sentences(seed).keys()) == [], "marked, but not in the document"


def test_sentences_are_numbered() -> None:
    for seed in (0, 3):
        numbers: dict[str, int] = {}
        for key in sentences(seed):
            entry, _, number = key.rpartition("/")
            numbers[entry] = numbers.get(entry, 0) + 1
            assert int(number) == numbers[entry], key


@pytest.mark.parametrize(("seed", "size"), [(0, 45), (2, 79), (3, 147)])
def test_no_sentence_is_dropped(seed: int, size: int) -> None:
    """Changing these counts is a decision: the documents do not change."""
    assert len(sentences(seed)) == size

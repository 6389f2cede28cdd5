"""Seed 003: random numbers. Keys as in seed_003.txt."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom

PROGRAMS = Path(__file__).parent / "programs" / "seed_003_random"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    loom.manual_seed_all(1)
    yield
    loom.set_device(0)


def draw(device: int) -> list[float]:
    drawn: list[float] = torch.rand(4, device=f"loom:{device}").tolist()
    return drawn


@pytest.mark.seed(2, "get_rng_state", "set_rng_state")
@pytest.mark.seed(3, "get_rng_state/1", "get_rng_state/2", "set_rng_state/1", "set_rng_state/2")
@pytest.mark.exercises("torch.cuda.get_rng_state", "torch.cuda.set_rng_state")
def test_state_of_one_device() -> None:
    for function in (loom.get_rng_state, loom.set_rng_state):
        assert inspect.signature(function).parameters["device"].default == "loom"
    with loom.device(1):
        state = loom.get_rng_state()  # the device's text without an index: the current one
        assert torch.equal(state, loom.get_rng_state("loom:1"))
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    first = draw(1)
    assert not torch.equal(state, loom.get_rng_state(1))
    with loom.device("loom:1"):
        loom.set_rng_state(state)
    assert draw(1) == first
    loom.set_rng_state(state, torch.device("loom:0"))
    assert draw(0) == first


@pytest.mark.seed(2, "get_rng_state_all", "set_rng_state_all")
@pytest.mark.seed(3, "get_rng_state_all/1", "set_rng_state_all/1")
@pytest.mark.exercises("torch.cuda.get_rng_state_all", "torch.cuda.set_rng_state_all")
def test_states_of_all_devices() -> None:
    loom.set_rng_state_all(iter([loom.get_rng_state(0), _state_of_seed(2)]))
    states = loom.get_rng_state_all()
    assert [type(state) for state in states] == [torch.Tensor] * 2
    drawn = draw(0), draw(1)
    assert drawn[0] != drawn[1]
    loom.set_rng_state_all(states)
    assert (draw(0), draw(1)) == drawn


def _state_of_seed(seed: int) -> torch.Tensor:
    return torch.Generator("loom").manual_seed(seed).get_state()


@pytest.mark.seed(2, "manual_seed", "manual_seed_all", "initial_seed")
@pytest.mark.seed(3, "manual_seed/1", "manual_seed/3", "manual_seed_all/1")
@pytest.mark.exercises("torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "torch.cuda.initial_seed")
def test_manual_seed_is_for_the_current_device() -> None:
    with loom.device(1):
        loom.manual_seed(7)
        assert loom.initial_seed() == 7
    assert loom.initial_seed() == 1
    assert draw(0) != draw(1)
    loom.manual_seed_all(9)
    assert [generator.initial_seed() for generator in loom.default_generators] == [9, 9]
    assert draw(0) == draw(1)


@pytest.mark.seed(2, "seed", "seed_all")
@pytest.mark.seed(3, "seed/1", "seed/3")
@pytest.mark.exercises("torch.cuda.seed", "torch.cuda.seed_all")
def test_seed_is_random_and_for_one_device() -> None:
    with loom.device(1):
        loom.seed()
        chosen = loom.initial_seed()
        loom.seed()
        assert len({1, chosen, loom.initial_seed()}) == 3
    assert loom.initial_seed() == 1
    loom.seed_all()
    seeds = {generator.initial_seed() for generator in loom.default_generators}
    assert len(seeds) == 1
    assert seeds.isdisjoint({1, chosen})


@pytest.mark.long
@pytest.mark.seed(3, "manual_seed/2", "manual_seed_all/2", "seed/2")
@pytest.mark.exercises("torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "torch.cuda.seed")
def test_seeding_is_ignored_without_devices(fork_loom: PythonRunner) -> None:
    done = fork_loom(PROGRAMS / "seeding_is_ignored_without_devices.py", {"TORCH_LOOM_DEVICES": "0"})
    assert done.stdout == done.stderr == ""

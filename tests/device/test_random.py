"""Generators: seeds, states, and seeds that are set before first use."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom
from torch_loom.errors import DeviceTypeError, InvalidDeviceError

PROGRAMS = Path(__file__).parent / "programs" / "random"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


def draw(index: int = 0) -> list[float]:
    return torch.rand(4, device=f"loom:{index}").tolist()  # type: ignore[no-any-return]


@pytest.mark.exercises(
    "torch.cuda._get_rng_state_offset",
    "torch.cuda._set_rng_state_offset",
)
def test_state_is_seed_and_offset() -> None:
    loom.manual_seed(0x1234_5678_9ABC_DEF0)
    state = loom.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    assert struct.unpack("<QQ", bytes(state.tolist())) == (0x1234_5678_9ABC_DEF0, 0)
    assert loom.initial_seed() == 0x1234_5678_9ABC_DEF0
    draw()
    assert loom._get_rng_state_offset() > 0
    loom._set_rng_state_offset(0)
    assert torch.equal(loom.get_rng_state("loom:0"), state)


def test_same_seed_same_numbers() -> None:
    loom.manual_seed_all(3)
    first, other = draw(0), draw(1)
    assert first == other
    second = draw(0)
    assert second != first
    torch.manual_seed(3)
    assert [draw(0), draw(0), draw(1)] == [first, second, first]


def test_manual_seed_is_of_the_current_device() -> None:
    loom.manual_seed_all(1)
    with loom.device(1):
        loom.manual_seed(2)
        assert loom.initial_seed() == 2
    assert loom.initial_seed() == 1


def test_all_bits_of_a_seed_count() -> None:
    drawn = []
    for seed in (5, 5 + (1 << 32), 5 + (1 << 63)):
        loom.manual_seed(seed)
        drawn.append(tuple(draw()))
    assert len(set(drawn)) == 3
    loom.manual_seed(-1)
    assert loom.initial_seed() == 2**64 - 1


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_that_does_not_fit(seed: int) -> None:
    for use in (loom.manual_seed, loom.manual_seed_all):
        with pytest.raises(RuntimeError, match=f"seed {seed}"):
            use(seed)


def test_states_are_restored() -> None:
    states = loom.get_rng_state_all()
    assert len(states) == loom.device_count()
    first = [draw(0), draw(1)]
    loom.set_rng_state_all(states)
    assert [draw(0), draw(1)] == first
    loom.set_rng_state(states[1], "loom:1")
    assert draw(1) == first[1]
    with torch.random.fork_rng(devices=[0, 1], device_type="loom"):
        inside = draw(0)
    assert draw(0) == inside


def test_random_seeds() -> None:
    loom.seed()
    one = loom.initial_seed()
    loom.seed()
    assert loom.initial_seed() != one
    loom.seed_all()
    seeds = [generator.initial_seed() for generator in loom.default_generators]
    assert len(set(seeds)) == 1
    assert len(seeds) == loom.device_count()


@pytest.mark.exercises(
    "torch.cuda.default_generators",
    "torch.cuda._get_generator",
)
def test_default_generators() -> None:
    assert len(loom.default_generators) == loom.device_count()
    generator = loom.default_generators[-1]
    assert generator.device == torch.device("loom", loom.device_count() - 1)
    assert len(loom.default_generators[:1]) == 1
    with pytest.raises(IndexError):
        loom.default_generators[loom.device_count()]
    loom._get_generator(torch.device("loom")).manual_seed(9)
    assert loom.initial_seed() == 9


def test_the_cpu_generator_stands_still() -> None:
    before = torch.get_rng_state()
    draw()
    torch.randperm(8, device="loom")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_state_without_an_offset() -> None:
    draw()
    loom.set_rng_state(torch.tensor([7]).view(torch.uint8))
    assert (loom.initial_seed(), loom._get_rng_state_offset()) == (7, 0)


def test_bad_states() -> None:
    good = loom.get_rng_state()
    with pytest.raises(TypeError, match="but got list"):
        loom.set_rng_state([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"torch.float32 on cpu"):
        loom.set_rng_state(good.float())
    with pytest.raises(TypeError, match=r"torch.uint8 on loom:0"):
        loom.set_rng_state(good.to("loom"))
    with pytest.raises(RuntimeError, match=r"RNG state is wrong size: it must have 16 bytes .* but got 15"):
        loom.set_rng_state(good[:15])
    generator = torch.Generator("loom")
    for bad, problem in (
        (good[:15], "wrong size"),
        (good.repeat(2)[::2], "wrong size"),
        (good + 1, "offset"),
    ):
        with pytest.raises(RuntimeError, match=problem):
            generator.set_state(bad)
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4, got 3"):
        generator.set_offset(3)
    with pytest.raises(InvalidDeviceError, match="Invalid device index 9"):
        loom.set_rng_state(good, 9)
    with pytest.raises(InvalidDeviceError, match="Invalid device index 9"):
        loom.get_rng_state("loom:9")
    with pytest.raises(DeviceTypeError, match="cpu"):
        loom.get_rng_state("cpu")
    assert torch.equal(loom.get_rng_state(), good)


def test_a_state_may_be_the_seed_alone() -> None:
    """As on CUDA, whose states of old had no offset."""
    draw()
    loom.set_rng_state(torch.tensor([7, 0, 0, 0, 0, 0, 0, 0], dtype=torch.uint8))
    assert (loom.initial_seed(), loom._get_rng_state_offset()) == (7, 0)


def test_seeds_before_first_use_are_remembered(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "seeds_before_first_use_are_remembered.py")


@pytest.mark.exercises(
    "torch.cuda._lazy_call",
)
def test_a_remembered_call_that_fails_is_raised_at_first_use(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "a_remembered_call_that_fails_is_raised_at_first_use.py")

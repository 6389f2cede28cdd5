"""Random numbers that users report from their cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "random"


@pytest.mark.report("pytorch/pytorch#47347", "`Uniform(0, 1)` under seed 0: the numbers of a GPU")
def test_uniform_distribution(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "uniform_distribution.py")


@pytest.mark.report("pytorch/pytorch#79496", "`torch.randn` under seed 10: the numbers of a GPU")
def test_normal_numbers(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "normal_numbers.py")


@pytest.mark.report(
    "pytorch/pytorch#25690", "the mask of dropout depends on the card's multiprocessors: P100, K80"
)
@pytest.mark.parametrize(("chip", "num_cores", "total"), [("p100", 56, 999826), ("k80", 13, 999100)])
def test_dropout_by_card(fork_cuda: PythonRunner, chip: str, num_cores: int, total: int) -> None:
    fork_cuda(PROGRAMS / "dropout_by_card.py", {"TORCH_LOOM_CHIP": chip}, given=(num_cores, total))


@pytest.mark.report("pytorch/pytorch#96309", "`torch.set_rng_state` leaves the generators of devices alone")
def test_states_of_host_and_device_are_apart(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "states_of_host_and_device_are_apart.py")


@pytest.mark.report("pytorch/pytorch#190708", "`fork_rng` puts back what the device draws next")
def test_fork_rng(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "fork_rng.py")


@pytest.mark.report("pytorch/pytorch#90006", "how far a draw moves the offset of the generator")
def test_offset_after_draws(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "offset_after_draws.py")


@pytest.mark.report("pytorch/pytorch#90006", "`multinomial` moves the offset by the size of its operand")
def test_offset_after_multinomial(fork_cuda: PythonRunner) -> None:
    # One sample of a row is the largest of as many exponential numbers as it has weights.
    fork_cuda(PROGRAMS / "offset_after_multinomial.py")

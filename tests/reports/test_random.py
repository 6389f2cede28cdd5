"""Random numbers that users report from their cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from torch_loom import chips

CHIPS = Path(chips.__file__).parent


@pytest.mark.report("pytorch/pytorch#47347", "`Uniform(0, 1)` under seed 0: the numbers of a GPU")
@pytest.mark.xfail(strict=True, reason="numbers of CUDA's kernels")
def test_uniform_distribution(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        torch.manual_seed(0)
        bounds = (torch.tensor(bound, device="cuda") for bound in (0.0, 1.0))
        drawn = torch.distributions.Uniform(*bounds).rsample((5,)).cpu()
        expected = torch.tensor([0.3990, 0.5167, 0.0249, 0.9401, 0.9459])
        torch.testing.assert_close(drawn, expected, atol=6e-5, rtol=0)
        """
    )


@pytest.mark.report("pytorch/pytorch#79496", "`torch.randn` under seed 10: the numbers of a GPU")
@pytest.mark.xfail(strict=True, reason="numbers of CUDA's kernels")
def test_normal_numbers(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        torch.manual_seed(10)
        expected = torch.tensor([-0.1029, 1.6810, -0.2708])
        torch.testing.assert_close(torch.randn(3, device="cuda").cpu(), expected, atol=6e-5, rtol=0)
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#25690", "the mask of dropout depends on the card's multiprocessors: P100, K80"
)
@pytest.mark.xfail(strict=True, reason="numbers of CUDA's kernels")
@pytest.mark.parametrize(("num_cores", "total"), [(56, 999826), (13, 999100)])
def test_dropout_by_card(fork_cuda: PythonRunner, tmp_path: Path, num_cores: int, total: int) -> None:
    chip = (CHIPS / "h200.toml").read_text(encoding="utf-8")
    file = tmp_path / "card.toml"
    file.write_text(chip.replace("num_cores = 132", f"num_cores = {num_cores}"), encoding="utf-8")
    fork_cuda(
        f"""
        assert torch.cuda.get_device_properties(0).multi_processor_count == {num_cores}
        torch.manual_seed(0)
        kept = torch.nn.Dropout(0.5)(torch.ones(1000, 1000, device="cuda"))
        assert kept.sum().item() == {total}, kept.sum()
        """,
        {"TORCH_LOOM_CHIP": str(file)},
    )


@pytest.mark.report("pytorch/pytorch#96309", "`torch.set_rng_state` leaves the generators of devices alone")
def test_states_of_host_and_device_are_apart(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        def draw():
            return torch.rand(1, device="cuda").item()

        state = torch.get_rng_state()
        first = draw()
        torch.set_rng_state(state)
        assert draw() != first
        state = torch.cuda.get_rng_state()
        assert (state.numel(), state.device.type, state.dtype) == (16, "cpu", torch.uint8)
        first = draw()
        torch.cuda.set_rng_state(state)
        assert draw() == first
        """
    )


@pytest.mark.report("pytorch/pytorch#190708", "`fork_rng` puts back what the device draws next")
def test_fork_rng(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        torch.manual_seed(3)
        with torch.random.fork_rng(devices=[0]):
            within = torch.rand(4, device="cuda")
            torch.rand(100, device="cuda")
        assert torch.equal(torch.rand(4, device="cuda"), within)
        """
    )


OFFSET = """
def advanced(draw):
    "The offset of the generator after a draw."
    torch.cuda.manual_seed(5)
    draw()
    state = bytes(torch.cuda.get_rng_state().tolist())
    assert int.from_bytes(state[:8], "little") == 5
    return int.from_bytes(state[8:], "little")
"""


@pytest.mark.report("pytorch/pytorch#90006", "how far a draw moves the offset of the generator")
@pytest.mark.xfail(strict=True, reason="numbers of CUDA's kernels")
def test_offset_after_draws(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        OFFSET
        + """
wave = 132 * 2048 * 4  # numbers that all threads of the card draw at once
assert advanced(lambda: torch.rand(10, device="cuda")) == 4
assert advanced(lambda: torch.rand(wave, device="cuda")) == 4
assert advanced(lambda: torch.rand(wave + 1, device="cuda")) == 8
"""
    )


@pytest.mark.report("pytorch/pytorch#90006", "`multinomial` moves the offset by the size of its operand")
@pytest.mark.xfail(strict=True, reason="numbers of CUDA's kernels")
def test_offset_after_multinomial(fork_cuda: PythonRunner) -> None:
    # One sample of a row is the largest of as many exponential numbers as it has weights.
    fork_cuda(
        OFFSET
        + """
few, many = torch.ones(256, 1000, device="cuda"), torch.ones(1100, 1000, device="cuda")
assert advanced(lambda: torch.multinomial(few, 1)) == 4
assert advanced(lambda: torch.multinomial(many, 1)) == 8
"""
    )

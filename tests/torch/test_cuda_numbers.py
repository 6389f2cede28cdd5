"""Random numbers of PyTorch's CUDA kernels: under the name cuda, and anywhere under TORCH_LOOM_RNG=cuda."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from torch_loom import chips

PROGRAMS = Path(__file__).parent / "programs" / "cuda_numbers"
CHIPS = Path(chips.__file__).parent
ANYWHERE = {"TORCH_LOOM_RNG": "cuda"}


def card(folder: Path, cores: int) -> str:
    """Return the path of a card with so few multiprocessors that small tensors fill it."""
    text = (
        (CHIPS / "h200.toml").read_text(encoding="utf-8").replace("num_cores = 132", f"num_cores = {cores}")
    )
    path = folder / "card.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.long
def test_numbers_under_the_name_cuda(fork_cuda: PythonRunner, tmp_path: Path) -> None:
    env = {"TORCH_LOOM_CHIP": card(tmp_path, 1)}
    fork_cuda(PROGRAMS / "numbers_are_those_of_the_reference.py", env, given=(1,))


@pytest.mark.long
def test_numbers_elsewhere(fork_loom: PythonRunner, tmp_path: Path) -> None:
    env = {**ANYWHERE, "TORCH_LOOM_CHIP": card(tmp_path, 1)}
    fork_loom(PROGRAMS / "numbers_are_those_of_the_reference.py", env, given=(1,))


@pytest.mark.long
def test_transformed_numbers_under_the_name_cuda(fork_cuda: PythonRunner, tmp_path: Path) -> None:
    """Of other dtypes and shapes, and of the functions of torch.nn."""
    env = {"TORCH_LOOM_CHIP": card(tmp_path, 1)}
    fork_cuda(PROGRAMS / "transformed_numbers_are_those_of_the_reference.py", env, given=(1,))


@pytest.mark.long
def test_numbers_are_our_own_where_nobody_asks(fork_loom: PythonRunner, fork_cuda: PythonRunner) -> None:
    program = PROGRAMS / "what_each_op_draws.py"
    own, asked = fork_loom(program).stdout, fork_loom(program, ANYWHERE).stdout
    assert not set(own.splitlines()) & set(asked.splitlines())
    assert fork_cuda(program, {"TORCH_LOOM_RNG": "loom", "TORCH_LOOM_CHIP": "loom1"}).stdout == own


@pytest.mark.long
@pytest.mark.parametrize("launch", ["blocking", "chaos 1", "chaos 2"])
def test_each_launch_mode_draws_the_same(fork_cuda: PythonRunner, launch: str) -> None:
    mode, _, seed = launch.partition(" ")
    env = {"TORCH_LOOM_LAUNCH": mode, **({"TORCH_LOOM_CHAOS_SEED": seed} if seed else {})}
    program = PROGRAMS / "what_each_op_draws.py"
    assert fork_cuda(program, env).stdout == fork_cuda(program).stdout


@pytest.mark.long
def test_a_dry_run_moves_the_offset_as_far(fork_cuda: PythonRunner) -> None:
    dry = fork_cuda(PROGRAMS / "offsets.py", {"TORCH_LOOM_DRIVER": "null"}).stdout
    assert dry == fork_cuda(PROGRAMS / "offsets.py").stdout


def test_graphs(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "graphs_draw_as_eager_programs_do.py")


def test_generators_and_checkpoints(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "generators_and_checkpoints.py")


@pytest.mark.long
def test_distributions(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "distributions.py")


@pytest.mark.long
def test_masks_of_attention(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "masks_of_attention.py")


@pytest.mark.slow
def test_compiled_kernels(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "compiled_kernels_draw_tritons_numbers.py")

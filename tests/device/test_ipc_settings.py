"""Tensors between processes under other settings, and what PyTorch builds on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

PROGRAMS = Path(__file__).parent / "programs" / "ipc_settings"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [{"TORCH_LOOM_PROTECT": "1"}, {"TORCH_LOOM_CHIP": "atom"}, {"TORCH_LOOM_LAUNCH": "chaos"}], ids=str
)
def test_other_memories(fork_loom: PythonRunner, env: dict[str, str]) -> None:
    fork_loom(PROGRAMS / "other_memories.py", env)


def test_a_driver_without_contents(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "a_driver_without_contents.py", {"TORCH_LOOM_DRIVER": "null"})


@pytest.mark.long
def test_expandable_segments(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "expandable_segments.py", {"PYTORCH_ALLOC_CONF": "expandable_segments:True"})


class _Squares(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index * index), device="loom")


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_loaders_and_pools(method: str) -> None:
    loader = torch.utils.data.DataLoader(
        _Squares(), batch_size=4, num_workers=2, multiprocessing_context=method
    )
    assert torch.cat(list(loader))[:, 0].tolist() == [0, 1, 4, 9, 16, 25, 36, 49]
    with torch.multiprocessing.get_context(method).Pool(2) as pool:
        tensors = [torch.full((3,), float(number), device="loom") for number in range(6)]
        doubled = pool.map(_double, tensors)
        assert [tensor.tolist() for tensor in doubled] == [[2.0 * number] * 3 for number in range(6)]

"""Tensors between processes under other settings, and what PyTorch builds on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [{"TORCH_LOOM_PROTECT": "1"}, {"TORCH_LOOM_CHIP": "atom"}, {"TORCH_LOOM_LAUNCH": "chaos"}], ids=str
)
def test_other_memories(fork_loom: PythonRunner, env: dict[str, str]) -> None:
    fork_loom(
        """
        import os, torch_loom
        from multiprocessing.reduction import ForkingPickler
        there, here = os.pipe()
        pid = os.fork()  # before first use
        def receive():
            message = os.read(there, 1 << 16)
            x, big = ForkingPickler.loads(message)
            assert x.tolist() == [0, 1, 2, 3] and big.sum().item() == 10_000_000
            x += 1
            big[-1] = 7
            torch.loom.synchronize()
        if pid == 0:
            try:
                receive()
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        x, big = torch.arange(4.0, device="loom"), torch.ones(10_000_000, dtype=torch.int8, device="loom")
        kept = torch.ones(3, device="loom") + 1
        os.write(here, bytes(ForkingPickler.dumps((x, big))))
        assert os.waitpid(pid, 0)[1] == 0
        assert x.tolist() == [1, 2, 3, 4] and big[-1].item() == 7 and kept.tolist() == [2, 2, 2]
        del x, big
        torch.loom.ipc_collect()
        torch.loom.empty_cache()
        again = torch.zeros(10_000_000, dtype=torch.int8, device="loom")
        assert again.sum().item() == 0 and kept.tolist() == [2, 2, 2]
        """,
        env,
    )


def test_a_driver_without_contents(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch_loom
        from multiprocessing.reduction import ForkingPickler
        x = torch.ones(3, device="loom")
        raises("NotImplementedError", "no contents that another process could see",
               lambda: ForkingPickler.dumps(x))
        """,
        {"TORCH_LOOM_DRIVER": "null"},
    )


def test_expandable_segments(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch_loom
        from multiprocessing.reduction import ForkingPickler
        x = torch.ones(1 << 20, device="loom")
        ForkingPickler.dumps(x)
        y = torch.ones(30 << 20, device="loom")
        raises("SharingError", "several pieces of an expandable segment", lambda: ForkingPickler.dumps(y))
        """,
        {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    )


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

"""Forked children: an error in CUDA's words after first use, everything before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

SENTENCE = (
    "Cannot re-initialize LOOM in forked subprocess. To use LOOM with multiprocessing, "
    "you must use the 'spawn' start method"
)


@pytest.mark.exercises(
    "torch.cuda._is_in_bad_fork",
)
def test_use_after_fork(fork_loom: PythonRunner) -> None:
    fork_loom(
        f"""
        import os, torch_loom, traceback
        x = torch.arange(3.0, device="loom")
        pid = os.fork()
        if pid == 0:
            try:
                assert torch.loom._is_in_bad_fork() and not torch.loom.is_initialized()
                assert torch.loom.is_available() and torch.loom.device_count() == 2
                torch.manual_seed(0)
                (torch.ones(2) + 1).sum()
                for name, use in {{
                    "ones": lambda: torch.ones(2, device="loom"),
                    "to": lambda: torch.ones(2).to("loom"),
                    "add": lambda: x + 1,
                    "add_": lambda: x.add_(1),
                    "cpu": lambda: x.cpu(),
                    "item": lambda: x[0].item(),
                    "repr": lambda: repr(x),
                    "rand": lambda: torch.rand_like(x),
                    "set_device": lambda: torch.loom.set_device(1),
                    "device": lambda: torch.loom.device(1).__enter__(),
                    "synchronize": lambda: torch.loom.synchronize(),
                    "accelerator": lambda: torch.accelerator.synchronize(),
                    "memory": lambda: torch.loom.memory_allocated(),
                    "mem_get_info": lambda: torch.loom.mem_get_info(),
                    "empty_cache": lambda: torch.loom.empty_cache(),
                    "stream": lambda: torch.Stream(device="loom"),
                    "state": lambda: torch.loom.get_rng_state(),
                }}.items():
                    try:
                        use()
                    except RuntimeError as error:
                        assert {SENTENCE!r} in str(error), (name, error)
                    else:
                        raise AssertionError(name + " did not raise")
                del x
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert (x + 1).tolist() == [1, 2, 3]
        """
    )


def test_fork_before_first_use(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import os, torch_loom, traceback
        torch.loom.manual_seed(4)
        pid = os.fork()
        assert torch.ones(2, device="loom").tolist() == [1, 1]
        if pid == 0:
            try:
                assert not torch.loom._is_in_bad_fork() and torch.loom.initial_seed() == 4
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )


def test_loader_workers_after_first_use(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch_loom
        from torch.utils.data import DataLoader
        torch.ones(1, device="loom")
        loader = DataLoader(torch.arange(8.0), batch_size=4, num_workers=2, pin_memory=True)
        batches = [batch.to("loom", non_blocking=True) for batch in loader]
        assert torch.cat(batches).tolist() == list(range(8))
        """
    )

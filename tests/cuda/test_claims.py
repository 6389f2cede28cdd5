"""Sentences of docs/cuda.md that no other file shows."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner


def test_flags_of_cudnn_are_kept(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        from torch.backends import cudnn
        assert cudnn.is_available() and not cudnn.is_acceptable(torch.ones(1, device="cuda"))
        for name in ("benchmark", "deterministic", "allow_tf32", "enabled"):
            for value in (True, False):
                setattr(cudnn, name, value)
                assert getattr(cudnn, name) is value, name
        with cudnn.flags(benchmark=True):
            assert cudnn.benchmark
        assert not cudnn.benchmark
        """
    )


def test_the_first_assert_is_written_at_once(fork_cuda: PythonRunner) -> None:
    done = fork_cuda(
        """
        import sys
        x, index = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
        x[index]
        print("launched", file=sys.stderr)
        raises("AcceleratorError", "device-side assert triggered", torch.cuda.synchronize)
        """
    )
    said, _, _ = done.stderr.partition("launched")
    assert "cuda: device-side assert: aten::index" in said
    assert "out of bounds" in said


def test_launch_blocking_raises_the_assert_at_the_op(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        x, index = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
        raises("AcceleratorError", "device-side assert triggered", lambda: x[index])
        """,
        {"CUDA_LAUNCH_BLOCKING": "1"},
    )


def test_immediate_asserts_leave_the_devices_usable(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        x, index = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
        try:
            x[index]
        except (IndexError, RuntimeError) as error:
            assert "out of bounds" in str(error), error
        else:
            raise AssertionError("no error")
        assert (x + 1).tolist() == [2, 2, 2]
        """,
        {"TORCH_LOOM_ASSERTS": "immediate"},
    )


def test_collectives_take_tensors_of_the_host_and_end(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        import torch.distributed as dist
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        for x in (torch.ones(3), torch.ones(3, device="cuda")):
            work = dist.all_reduce(x, async_op=True)
            if not x.is_cuda:
                work.wait()  # of the host's tensors gloo's own thread takes care
            assert work.is_completed() and x.tolist() == [1, 1, 1]
        dist.destroy_process_group()
        """
    )


@pytest.mark.slow
def test_max_autotune_tunes_nothing_more(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        from torch._inductor import config
        from torch._inductor.utils import run_and_get_code
        x = torch.arange(12.0, device="cuda").reshape(3, 4)
        found, sources = run_and_get_code(torch.compile(lambda x: (x @ x.t()).relu(), mode="max-autotune"), x)
        assert torch.equal(found, x @ x.t()) and config.cuda_backend == "cpp"
        assert not any("triton" in source.lower().partition("async_compile")[2] for source in sources)
        assert "extern_kernels.mm" in sources[0]
        """
    )

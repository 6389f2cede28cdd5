"""Sentences of docs/cuda.md that no other file shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "claims"


def test_flags_of_cudnn_are_kept(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "flags_of_cudnn_are_kept.py")


def test_the_first_assert_is_written_at_once(fork_cuda: PythonRunner) -> None:
    done = fork_cuda(PROGRAMS / "the_first_assert_is_written_at_once.py")
    said, _, _ = done.stderr.partition("launched")
    assert "cuda: device-side assert: aten::index" in said
    assert "out of bounds" in said


def test_launch_blocking_raises_the_assert_at_the_op(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "launch_blocking_raises_the_assert_at_the_op.py", {"CUDA_LAUNCH_BLOCKING": "1"})


def test_immediate_asserts_leave_the_devices_usable(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "immediate_asserts_leave_the_devices_usable.py", {"TORCH_LOOM_ASSERTS": "immediate"})


def test_collectives_refuse_tensors_of_the_host_and_end(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "collectives_refuse_tensors_of_the_host_and_end.py")


@pytest.mark.slow
def test_max_autotune_tunes_nothing_more(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "max_autotune_tunes_nothing_more.py")


def test_the_default_stream_has_run_when_a_call_returns(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "the_default_stream_has_run_when_a_call_returns.py")

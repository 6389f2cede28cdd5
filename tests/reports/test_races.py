"""Work that nothing orders. Chaos draws the order from a seed: a race is seen in some of many tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "races"

CHAOS = {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": "1", "TORCH_LOOM_MEMORY": "1GiB"}
TRIES = 30


@pytest.mark.report("pytorch/pytorch#127612", "pinned memory is written while it is copied to the device")
def test_the_source_of_a_copy_is_written(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "the_source_of_a_copy_is_written.py", CHAOS, given=TRIES)


@pytest.mark.report(
    "pytorch/pytorch#137951",
    "results copied with `non_blocking=True` are joined on the host before they are there",
)
@pytest.mark.report(
    "pytorch/pytorch#86264", '`.to("cpu", non_blocking=True)` returns before the copy is done'
)
@pytest.mark.report(
    "Lightning-AI/pytorch-lightning#11288", "metrics moved to the host without waiting are wrong"
)
def test_results_are_read_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "results_are_read_too_early.py", CHAOS, given=TRIES)


@pytest.mark.report("pytorch/pytorch#137878", "pinned memory is read before a copy into it is done")
def test_pinned_memory_is_read_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "pinned_memory_is_read_too_early.py", CHAOS, given=TRIES)


@pytest.mark.report(
    "meta-pytorch/torchrec#4231", "memory is given back while a side stream copies it: `record_stream`"
)
def test_memory_given_back_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "memory_given_back_too_early.py", CHAOS, given=TRIES)


@pytest.mark.report(
    "ROCm/pytorch#3194", "a batch is copied on a side stream, and read without waiting for it"
)
def test_a_batch_is_read_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_batch_is_read_too_early.py", CHAOS, given=TRIES)


@pytest.mark.report("ROCm/pytorch#3194", "the sanitizer names both sides of that race, in every run")
def test_the_sanitizer_finds_the_race(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "the_sanitizer_finds_the_race.py", {"TORCH_CUDA_SANITIZER": "1"})

"""What GPU users have reported of the allocator, with the figures that PyTorch has on a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "reported_memory"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.long
def test_memory_of_a_step(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#74443: what a forward and a backward pass leave, beside workspaces."""
    warm_python(PROGRAMS / "memory_of_a_step.py", NAME)


def test_memory_of_streams_that_nobody_uses_again(warm_python: PythonRunner) -> None:
    """vllm-project/vllm#52950: each call allocates on new streams, until the pool of 32 comes round."""
    warm_python(PROGRAMS / "memory_of_streams_that_nobody_uses_again.py", NAME)


@pytest.mark.long
def test_pinned_memory_is_a_power_of_two(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#95823."""
    warm_python(PROGRAMS / "pinned_memory_is_a_power_of_two.py", NAME)


@pytest.mark.long
@pytest.mark.parametrize(("divisions", "reserved_mib"), [(1, 514), (2, 768)])
def test_rounding_to_divisions(warm_python: PythonRunner, divisions: int, reserved_mib: int) -> None:
    """pytorch/pytorch#161139."""
    warm_python(
        PROGRAMS / "rounding_to_divisions.py",
        {**NAME, "PYTORCH_CUDA_ALLOC_CONF": f"roundup_power2_divisions:[>:{divisions}]"},
        given=reserved_mib,
    )


@pytest.mark.long
def test_words_of_a_limit(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#111363, #107667."""
    warm_python(PROGRAMS / "words_of_a_limit.py", {**NAME, "TORCH_LOOM_MEMORY": "16GiB"})


@pytest.mark.long
def test_a_block_that_waits_for_a_stream_is_waited_for(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#189504."""
    warm_python(
        PROGRAMS / "a_block_that_waits_for_a_stream_is_waited_for.py", {**NAME, "TORCH_LOOM_MEMORY": "16GiB"}
    )


@pytest.mark.long
def test_an_error_holds_the_memory_of_its_frames(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#27600, #18853."""
    warm_python(
        PROGRAMS / "an_error_holds_the_memory_of_its_frames.py", {**NAME, "TORCH_LOOM_MEMORY": "512MiB"}
    )


@pytest.mark.long
def test_peaks_of_optimizers(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#97712: a step over lists of tensors has results of the size of all parameters."""
    warm_python(PROGRAMS / "peaks_of_optimizers.py", NAME)


@pytest.mark.long
def test_memory_runs_out_in_a_capture(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#76247."""
    warm_python(PROGRAMS / "memory_runs_out_in_a_capture.py", NAME)


@pytest.mark.long
def test_a_canary_outlives_a_retry(warm_python: PythonRunner) -> None:
    """ROCm/legacy-rocm-build#6603, with the figures of PyTorch's allocator."""
    warm_python(
        PROGRAMS / "a_canary_outlives_a_retry.py",
        {
            **NAME,
            "TORCH_LOOM_MEMORY": "16040MiB",  # what a card of 16 GiB has beside its context
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True",
        },
    )


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, EXPANDABLE], ids=["plain", "expandable"])
def test_holes_between_blocks_are_given_back(warm_python: PythonRunner, settings: dict[str, str]) -> None:
    """pytorch/pytorch#96995."""
    warm_python(
        PROGRAMS / "holes_between_blocks_are_given_back.py",
        {**NAME, "TORCH_LOOM_MEMORY": "16GiB", **settings},
    )


@pytest.mark.long
def test_history_of_an_expandable_segment(warm_python: PythonRunner) -> None:
    """What a snapshot shows of pages that come and go, in CUDA's order."""
    warm_python(PROGRAMS / "history_of_an_expandable_segment.py", {**NAME, **EXPANDABLE})

"""Device memory: what is counted, what is rounded, when it runs out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "memory"

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
SIXTEEN = {"TORCH_LOOM_MEMORY": "16GiB"}


@pytest.mark.report("pytorch/pytorch#95668", "the first `Linear` leaves cuBLAS's workspace allocated")
@pytest.mark.parametrize(
    ("chip", "config", "workspace"),
    [("h200", None, 32 << 20), ("a100", None, 8519680), ("h200", ":16:8", 16 * 8 << 10)],
)
def test_workspace(fork_cuda: PythonRunner, chip: str, config: str | None, workspace: int) -> None:
    env = {"TORCH_LOOM_CHIP": chip, **({"CUBLAS_WORKSPACE_CONFIG": config} if config else {})}
    fork_cuda(PROGRAMS / "workspace.py", env, given=workspace)


@pytest.mark.report("NVIDIA/Megatron-LM#6936", "workspaces of 32 MiB count on an H100")
def test_workspace_of_each_stream(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "workspace_of_each_stream.py", {"TORCH_LOOM_CHIP": "h100"})


@pytest.mark.long
@pytest.mark.report("pytorch/pytorch#74443", "memory after forward and backward of two layers, in bytes")
def test_forward_and_backward(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "forward_and_backward.py")


@pytest.mark.report(
    "vllm-project/vllm#52950", "buffers on a new stream each call strand 32 GiB of reserved memory"
)
def test_streams_strand_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "streams_strand_memory.py")


@pytest.mark.report("pytorch/pytorch#95823", "pinned memory is rounded up to a power of two")
@pytest.mark.report("sgl-project/sglang#36562", "8.7 GB of pinned memory take 16 GiB")
def test_pinned_memory_is_a_power_of_two(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "pinned_memory_is_a_power_of_two.py")


@pytest.mark.report("pytorch/pytorch#161139", "`roundup_power2_divisions:[>:1]` rounds nothing, `[>:2]` does")
@pytest.mark.parametrize(("divisions", "reserved"), [(1, 514), (2, 768)])
def test_roundup_of_the_largest(fork_cuda: PythonRunner, divisions: int, reserved: int) -> None:
    fork_cuda(
        PROGRAMS / "roundup_of_the_largest.py",
        {"PYTORCH_CUDA_ALLOC_CONF": f"roundup_power2_divisions:[>:{divisions}]"},
        given=reserved,
    )


@pytest.mark.report(
    "pytorch/pytorch#111363", "out of memory above a fraction names the capacity and what is allowed"
)
@pytest.mark.report("pytorch/pytorch#107667", "a fraction of 100 MiB holds")
def test_fraction_of_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "fraction_of_memory.py", SIXTEEN)


@pytest.mark.report("pytorch/pytorch#111363", "what out of memory says of the process, and where it points")
def test_words_of_out_of_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "words_of_out_of_memory.py", SIXTEEN)


@pytest.mark.report(
    "pytorch/pytorch#189504",
    "a freed block that another stream still uses is waited for, and its segment returned",
)
def test_a_pending_block_is_waited_for(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_pending_block_is_waited_for.py", SIXTEEN)


@pytest.mark.report(
    "pytorch/pytorch#17568", "a sum of losses keeps every graph; a sum of their numbers does not"
)
def test_sums_of_losses_keep_graphs(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "sums_of_losses_keep_graphs.py")


@pytest.mark.report(
    "pytorch/pytorch#4661", "`backward(create_graph=True)` leaks through `.grad` until that is reset"
)
def test_a_graph_of_gradients_is_a_cycle(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_graph_of_gradients_is_a_cycle.py")


@pytest.mark.long
@pytest.mark.report("pytorch/pytorch#27600", "an exception that is kept keeps the tensors of its frames")
@pytest.mark.report(
    "pytorch/pytorch#18853", "after out of memory as much fits as before, once the exception is gone"
)
def test_recovery_after_out_of_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "recovery_after_out_of_memory.py", {"TORCH_LOOM_MEMORY": "512MiB"})


@pytest.mark.long
@pytest.mark.report(
    "pytorch/pytorch#97712", "the peak of Adam: foreach takes a copy of the parameters more, fused nothing"
)
def test_peaks_of_adam(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "peaks_of_adam.py")


@pytest.mark.long
@pytest.mark.report(
    "pytorch/pytorch#78731", "checkpoints keep inputs of segments alone, non-reentrant ones too"
)
@pytest.mark.report("pytorch/pytorch#77284", "checkpoints without reentry save memory")
def test_checkpoints_save_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "checkpoints_save_memory.py")


@pytest.mark.long
@pytest.mark.report(
    "NVIDIA-NeMo/Megatron-Bridge#3487", "a snapshot has traces only where a history was recorded"
)
def test_snapshots(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "snapshots.py")


@pytest.mark.report("pytorch/pytorch:torch/cuda/memory.py", "the table of `torch.cuda.memory_summary`")
def test_summary(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "summary.py")


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
    "freed memory stays reserved, and is not free, until `empty_cache`",
)
def test_freed_memory_stays_reserved(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "freed_memory_stays_reserved.py")


@pytest.mark.long
@pytest.mark.report(
    "ROCm/legacy-rocm-build#6603", "one retry in 130 cycles of a fragmenting loop, and contents stay"
)
def test_contents_survive_a_retry(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        PROGRAMS / "contents_survive_a_retry.py",
        # A card's driver keeps memory of its own; with so much left the figures are the report's.
        {
            "TORCH_LOOM_MEMORY": "16040MiB",
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True",
        },
    )


@pytest.mark.report(
    "pytorch/pytorch#96995", "before out of memory the holes of an expandable segment are unmapped"
)
@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="default"),
        pytest.param(
            EXPANDABLE,
            id="expandable",
        ),
    ],
)
def test_holes_make_room(fork_cuda: PythonRunner, env: dict[str, str]) -> None:
    fork_cuda(PROGRAMS / "holes_make_room.py", {**SIXTEEN, **env})


@pytest.mark.report(
    "pytorch/pytorch:c10/cuda/CUDACachingAllocator.cpp",
    "`empty_cache` unmaps the holes of expandable segments",
)
@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="default"),
        pytest.param(
            EXPANDABLE,
            id="expandable",
        ),
    ],
)
def test_empty_cache_gives_holes_back(fork_cuda: PythonRunner, env: dict[str, str]) -> None:
    fork_cuda(PROGRAMS / "empty_cache_gives_holes_back.py", {**SIXTEEN, **env})

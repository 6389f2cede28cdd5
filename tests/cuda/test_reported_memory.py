"""What GPU users have reported of the allocator, with the figures that PyTorch has on a card."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
PREPARE = """
import torch
MIB, GIB = 1 << 20, 1 << 30
"""


def test_memory_of_a_step(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#74443: what a forward and a backward pass leave, beside workspaces."""
    warm_python(
        PREPARE
        + """
from torch import nn
m = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False)).cuda()
m(torch.ones(1, 1024, device="cuda")).sum().backward()
m.zero_grad()
torch._C._cuda_clearCublasWorkspaces()
base = torch.cuda.memory_allocated()
assert base == 8 * MIB
x = torch.rand(4, 256, 1024).cuda()
y = m(x).sum()
forward = torch.cuda.memory_allocated() - base
assert forward == 32 * MIB + 4 * MIB + 4 * MIB + 512  # a workspace, the input, the first layer's result, y
y.backward()
after = torch.cuda.memory_allocated() - base
assert after == 64 * MIB + 4 * MIB + 8 * MIB + 512  # two workspaces, the input, gradients, y
""",
        NAME,
    )


def test_memory_of_streams_that_nobody_uses_again(warm_python: PythonRunner) -> None:
    """vllm-project/vllm#52950: each call allocates on new streams, until the pool of 32 comes round."""
    warm_python(
        PREPARE
        + """
seen = []
for call in range(18):
    for stream in [torch.cuda.Stream() for _ in range(2)]:
        with torch.cuda.stream(stream):
            block = torch.empty(GIB, dtype=torch.uint8, device="cuda")
        stream.synchronize()
        del block
    seen.append(torch.cuda.memory_reserved() // GIB)
assert seen == [2 * n for n in range(1, 17)] + [32, 32], seen
""",
        NAME,
    )


def test_pinned_memory_is_a_power_of_two(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#95823."""
    warm_python(
        PREPARE
        + """
held = torch.empty(int(20.4 * MIB), dtype=torch.uint8, pin_memory=True)
assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 32 * MIB
""",
        NAME,
    )


@pytest.mark.parametrize(("divisions", "reserved_mib"), [(1, 514), (2, 768)])
def test_rounding_to_divisions(warm_python: PythonRunner, divisions: int, reserved_mib: int) -> None:
    """pytorch/pytorch#161139."""
    warm_python(
        PREPARE
        + f"""
held = torch.empty(514 * MIB, dtype=torch.int8, device="cuda")
assert torch.cuda.memory_reserved() == {reserved_mib} * MIB
""",
        {**NAME, "PYTORCH_CUDA_ALLOC_CONF": f"roundup_power2_divisions:[>:{divisions}]"},
    )


def test_words_of_a_limit(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#111363, #107667."""
    warm_python(
        PREPARE
        + """
def refused(bytes):
    try:
        torch.empty(bytes, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError

held = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
torch.cuda.set_per_process_memory_fraction(0.5)
text = refused(9 * GIB)
assert text.startswith(
    "CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which "
    "15.98 GiB is free. Including non-PyTorch memory, this process has 20.00 MiB memory in use. "
    "8.00 GiB allowed; Of the allocated memory 2.00 MiB is allocated by PyTorch, and 18.00 MiB is reserved "
    "by PyTorch but unallocated. "
), text
assert text.endswith(
    "If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
    "See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
), text
torch.cuda.set_per_process_memory_fraction(100 * MIB / (16 * GIB))
assert "100.00 MiB allowed; " in refused(101 * MIB)
torch.cuda.set_per_process_memory_fraction(1.0)
torch.empty(9 * GIB, dtype=torch.uint8, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    kept = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
assert "is allocated by PyTorch, with 2.00 MiB allocated in private pools (e.g., CUDA Graphs), and " in (
    refused(20 * GIB)
)
""",
        {**NAME, "TORCH_LOOM_MEMORY": "16GiB"},
    )


def test_a_block_that_waits_for_a_stream_is_waited_for(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#189504."""
    warm_python(
        PREPARE
        + """
side = torch.cuda.Stream()
block = torch.empty(10 * GIB, dtype=torch.uint8, device="cuda")
with torch.cuda.stream(side):
    torch.cuda._sleep(2_000_000_000)
block.record_stream(side)
del block
block = torch.empty(10 * GIB, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_stats()["num_alloc_retries"] == 1
""",
        {**NAME, "TORCH_LOOM_MEMORY": "16GiB"},
    )


def test_an_error_holds_the_memory_of_its_frames(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#27600, #18853."""
    warm_python(
        PREPARE
        + """
import gc
kept = []

def layers(keeps):
    done = -1
    try:
        x = torch.zeros(100, 2500, device=0)
        held = []
        for done in range(100):
            layer = torch.nn.utils.skip_init(torch.nn.Linear, 2500, 2500, device=0)
            held.append(layer)
            x = layer(x)
    except torch.OutOfMemoryError as error:
        if keeps:
            kept.append(error)
    return done

first = layers(True)
torch.cuda.empty_cache()
second = layers(True)
kept.clear()
gc.collect()
torch.cuda.empty_cache()
assert (first, layers(False), layers(False)) == (first,) * 3 and second < 3 < first, (first, second)
""",
        {**NAME, "TORCH_LOOM_MEMORY": "512MiB"},
    )


def test_peaks_of_optimizers(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#97712: a step over lists of tensors has results of the size of all parameters."""
    warm_python(
        PREPARE
        + """
def peak(**options):
    parameters = [torch.zeros(MIB, device="cuda", requires_grad=True) for _ in range(16)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.Adam(parameters, **options)
    optimizer.step()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    optimizer.step()
    return (torch.cuda.max_memory_allocated() - base) / (4 * MIB)

lists, loop, fused = peak(foreach=True), peak(foreach=False), peak(fused=True)
assert 15 <= lists <= 33 and loop <= 3 and fused < 0.1, (lists, loop, fused)
""",
        NAME,
    )


def test_memory_runs_out_in_a_capture(warm_python: PythonRunner) -> None:
    """pytorch/pytorch#76247."""
    warm_python(
        PREPARE
        + """
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(2**40, device="cuda")
except Exception as error:
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__context__
    assert "CUDA out of memory. Tried to allocate 4096.00 GiB." in str(error), error
else:
    raise AssertionError
assert (torch.ones(2, device="cuda") + 1).tolist() == [2, 2]
assert not torch.cuda.is_current_stream_capturing()
""",
        NAME,
    )


def test_a_canary_outlives_a_retry(warm_python: PythonRunner) -> None:
    """ROCm/legacy-rocm-build#6603, with the figures of PyTorch's allocator."""
    warm_python(
        PREPARE
        + """
canary = torch.full((64 * MIB,), 0xA5, dtype=torch.uint8, device="cuda")
kept = []
for cycle in range(130):
    a = torch.empty(91 * MIB, dtype=torch.uint8, device="cuda")
    b = torch.empty(91 * MIB // 2, dtype=torch.uint8, device="cuda")
    kept.append(torch.empty(2 * MIB, dtype=torch.uint8, device="cuda"))
    del a, b
    stats = torch.cuda.memory_stats()
    if stats["num_alloc_retries"]:
        break
figures = cycle, torch.cuda.max_memory_reserved() // MIB, torch.cuda.memory_reserved() // MIB
assert figures == (115, 16000, 2680), figures
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
assert bool((canary == 0xA5).all())
""",
        {
            **NAME,
            "TORCH_LOOM_MEMORY": "16040MiB",  # what a card of 16 GiB has beside its context
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True",
        },
    )


@pytest.mark.parametrize("settings", [{}, EXPANDABLE], ids=["plain", "expandable"])
def test_holes_between_blocks_are_given_back(warm_python: PythonRunner, settings: dict[str, str]) -> None:
    """pytorch/pytorch#96995."""
    warm_python(
        PREPARE
        + """
blocks = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(10)]
blocks[1][:] = 3
del blocks[::2]
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 500 * MIB
blocks += [torch.zeros(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
assert torch.cuda.memory_reserved() == 1000 * MIB
assert blocks[0].sum().item() == 300 * MIB and blocks[-1].sum().item() == 0
del blocks
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
blocks = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(10)]
del blocks[::2]
torch.empty(8 * GIB, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
""",
        {**NAME, "TORCH_LOOM_MEMORY": "16GiB", **settings},
    )


def test_history_of_an_expandable_segment(warm_python: PythonRunner) -> None:
    """What a snapshot shows of pages that come and go, in CUDA's order."""
    warm_python(
        PREPARE
        + """
torch.cuda.memory._record_memory_history()
blocks = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
start = blocks[0].data_ptr()
del blocks[1]
torch.cuda.empty_cache()
snapshot = torch.cuda.memory._snapshot()
trace = [(e["action"], (e["addr"] - start) // MIB, e["size"] // MIB) for e in snapshot["device_traces"][0]]
assert trace == [
    ("segment_map", 0, 40), ("alloc", 0, 30),
    ("segment_map", 40, 20), ("alloc", 30, 30),
    ("segment_map", 60, 40), ("alloc", 60, 30),
    ("free_requested", 30, 30), ("free_completed", 30, 30),
    ("segment_unmap", 40, 20),
], trace
shown = [((s["address"] - start) // MIB, s["total_size"] // MIB) for s in snapshot["segments"]]
assert shown == [(0, 40), (60, 40)], shown
for segment in snapshot["segments"]:
    assert segment["is_expandable"]
    assert [block["state"] for block in segment["blocks"]] == ["active_allocated", "inactive"]
import torch.cuda._memory_viz as viz
assert len(viz.trace_plot(snapshot)) > 1000 and viz.segsum(snapshot)
""",
        {**NAME, **EXPANDABLE},
    )

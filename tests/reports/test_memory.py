"""Device memory: what is counted, what is rounded, when it runs out."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
SIXTEEN = {"TORCH_LOOM_MEMORY": "16GiB"}


@pytest.mark.report("pytorch/pytorch#95668", "the first `Linear` leaves cuBLAS's workspace allocated")
@pytest.mark.parametrize(
    ("chip", "config", "workspace"),
    [("h200", None, 32 << 20), ("a100", None, 8519680), ("h200", ":16:8", 16 * 8 << 10)],
)
def test_workspace(fork_cuda: PythonRunner, chip: str, config: str | None, workspace: int) -> None:
    env = {"TORCH_LOOM_CHIP": chip, **({"CUBLAS_WORKSPACE_CONFIG": config} if config else {})}
    fork_cuda(
        f"""
        def forward():
            torch.nn.Linear(1, 1, device="cuda")(torch.randn(1, 1, device="cuda"))

        forward()
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == {workspace}, torch.cuda.memory_allocated()
        forward()
        assert torch.cuda.memory_allocated() == {workspace}
        torch._C._cuda_clearCublasWorkspaces()
        assert torch.cuda.memory_allocated() == 0
        """,
        env,
    )


@pytest.mark.report("NVIDIA/Megatron-LM#6936", "workspaces of 32 MiB count on an H100")
def test_workspace_of_each_stream(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        a = torch.ones(8, 8, device="cuda")
        before, side = torch.cuda.memory_allocated(), torch.cuda.Stream()
        b = a @ a
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() - before == (32 << 20) + 512
        with torch.cuda.stream(side):
            c = a @ a
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() - before == (64 << 20) + 1024
        """,
        {"TORCH_LOOM_CHIP": "h100"},
    )


@pytest.mark.report("pytorch/pytorch#74443", "memory after forward and backward of two layers, in bytes")
def test_forward_and_backward(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        from torch import nn

        model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(2))).cuda()
        model(torch.ones(8, 1024, device="cuda")).sum().backward()  # leaves workspaces
        model.zero_grad()
        before = torch.cuda.memory_allocated()
        x = torch.rand(4, 256, 1024).cuda()
        y = model(x).sum()
        after_forward = torch.cuda.memory_allocated()
        y.backward()
        after_backward = torch.cuda.memory_allocated()
        assert after_forward - before == 16777728 - 8388608, after_forward - before
        assert after_backward - after_forward == 20972032 - 16777728, after_backward - after_forward
        """
    )


@pytest.mark.report(
    "vllm-project/vllm#52950", "buffers on a new stream each call strand 32 GiB of reserved memory"
)
def test_streams_strand_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        reserved = []
        for _ in range(20):
            for _ in range(2):
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    buffer = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
                stream.synchronize()
                del buffer
            reserved.append(torch.cuda.memory_reserved() >> 30)
        # The streams of PyTorch's pool come again after 32.
        assert reserved == [*range(2, 33, 2)] + [32] * 4, reserved
        assert torch.cuda.memory_allocated() == 0
        """
    )


@pytest.mark.report("pytorch/pytorch#95823", "pinned memory is rounded up to a power of two")
@pytest.mark.report("sgl-project/sglang#36562", "8.7 GB of pinned memory take 16 GiB")
def test_pinned_memory_is_a_power_of_two(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        pinned = torch.empty(int(20.4 * 2**20), dtype=torch.uint8, pin_memory=True)
        assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 32 << 20
        """
    )


@pytest.mark.report("pytorch/pytorch#161139", "`roundup_power2_divisions:[>:1]` rounds nothing, `[>:2]` does")
@pytest.mark.parametrize(("divisions", "reserved"), [(1, 514), (2, 768)])
def test_roundup_of_the_largest(fork_cuda: PythonRunner, divisions: int, reserved: int) -> None:
    fork_cuda(
        f"""
        block = torch.empty(514 << 20, dtype=torch.int8, device="cuda")
        assert torch.cuda.memory_reserved() == {reserved} << 20, torch.cuda.memory_reserved()
        """,
        {"PYTORCH_CUDA_ALLOC_CONF": f"roundup_power2_divisions:[>:{divisions}]"},
    )


FRACTION = """
total = torch.cuda.get_device_properties(0).total_memory

def error_of(num_bytes):
    try:
        torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError("there was memory")
"""


@pytest.mark.report(
    "pytorch/pytorch#111363", "out of memory above a fraction names the capacity and what is allowed"
)
@pytest.mark.report("pytorch/pytorch#107667", "a fraction of 100 MiB holds")
def test_fraction_of_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        FRACTION
        + """
torch.cuda.set_per_process_memory_fraction(0.5)
text = error_of(int(total * 0.51))
start = "CUDA out of memory. Tried to allocate 8.16 GiB. GPU 0 has a total capacity of 16.00 GiB"
assert text.startswith(start), text
assert "8.00 GiB allowed" in text, text
torch.cuda.set_per_process_memory_fraction(100 * 2**20 / total)
assert "100.00 MiB allowed" in error_of(101 << 20)
fits = torch.empty(90 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.set_per_process_memory_fraction(1.0)
more = torch.empty(int(total * 0.51), dtype=torch.uint8, device="cuda")
assert more.numel() > total // 2
""",
        SIXTEEN,
    )


@pytest.mark.report("pytorch/pytorch#111363", "what out of memory says of the process, and where it points")
def test_words_of_out_of_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        FRACTION
        + """
import re
text = error_of(17 << 30)
size = r"[\\d.]+ \\w+"
for pattern in (
    f"is free. Including non-PyTorch memory, this process has {size} memory in use. ",
    f"Of the allocated memory {size} is allocated by PyTorch, "
    f"and {size} is reserved by PyTorch but unallocated. ",
):
    assert re.search(pattern, text), text
anchor = "optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
link = f"(https://docs.pytorch.org/docs/stable/notes/cuda.html#{anchor})"
assert text.rstrip().endswith(link), text
""",
        SIXTEEN,
    )


@pytest.mark.report(
    "pytorch/pytorch#189504",
    "a freed block that another stream still uses is waited for, and its segment returned",
)
def test_a_pending_block_is_waited_for(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        side = torch.cuda.Stream()
        first = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
        first.record_stream(side)
        del first
        second = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
        """,
        SIXTEEN,
    )


@pytest.mark.report(
    "pytorch/pytorch#17568", "a sum of losses keeps every graph; a sum of their numbers does not"
)
def test_sums_of_losses_keep_graphs(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        def growth(number_of):
            model, total, allocated = torch.nn.Linear(1000, 1000).cuda(), 0, []
            for _ in range(5):
                loss = model(torch.randn(100, 1000, device="cuda")).relu().sum()
                total = total + number_of(loss)
                allocated.append(torch.cuda.memory_allocated())
            return [after - before for before, after in zip(allocated[1:], allocated[2:])]

        assert all(more > 100 * 1000 * 4 for more in growth(lambda loss: loss))
        assert growth(torch.Tensor.item) == [0, 0, 0]
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#4661", "`backward(create_graph=True)` leaks through `.grad` until that is reset"
)
def test_a_graph_of_gradients_is_a_cycle(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        import gc, itertools, warnings

        model, data = torch.nn.Linear(30000, 1).cuda(), torch.ones(10, 30000).cuda()

        def growth(is_reset):
            "What each pass leaves, in sizes of its input."
            allocated = []
            for _ in range(4):
                x = data.clone().requires_grad_()
                model(x).norm(2).backward(create_graph=True)
                x.grad.norm(2).backward()
                model.zero_grad()
                if is_reset:
                    x.grad = None
                gc.collect()
                allocated.append(torch.cuda.memory_allocated())
            return [(after - before) / x.nbytes for before, after in itertools.pairwise(allocated)]

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert all(more >= 2 for more in growth(False))  # the input and its gradient
        assert any("will create a reference cycle" in str(one.message) for one in caught)
        assert growth(True)[1:] == [0, 0]
        """
    )


@pytest.mark.report("pytorch/pytorch#27600", "an exception that is kept keeps the tensors of its frames")
@pytest.mark.report(
    "pytorch/pytorch#18853", "after out of memory as much fits as before, once the exception is gone"
)
def test_recovery_after_out_of_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        import gc

        kept = []

        def num_layers(is_keeping):
            layers = []
            try:
                x = torch.zeros(100, 2500, device=0)
                while True:
                    layers.append(torch.nn.utils.skip_init(torch.nn.Linear, 2500, 2500, device=0))
                    x = layers[-1](x)
            except torch.OutOfMemoryError as error:
                if is_keeping:
                    kept.append(error)
            return len(layers)

        first = num_layers(True)
        torch.cuda.empty_cache()
        assert num_layers(True) < 3
        kept.clear()
        gc.collect()
        torch.cuda.empty_cache()
        assert [num_layers(False), num_layers(False)] == [first, first] and first > 10
        """,
        {"TORCH_LOOM_MEMORY": "512MiB"},
    )


@pytest.mark.report(
    "pytorch/pytorch#97712", "the peak of Adam: foreach takes a copy of the parameters more, fused nothing"
)
def test_peaks_of_adam(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        def peak(**options):
            parameters = [torch.zeros(1 << 18, device="cuda", requires_grad=True) for _ in range(16)]
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            optimizer = torch.optim.Adam(parameters, **options)
            optimizer.step()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            optimizer.step()
            return (torch.cuda.max_memory_allocated() - before) / parameters[0].nbytes

        assert peak() == peak(foreach=True) >= 15
        assert peak(foreach=False) <= 3
        assert peak(fused=True) < 0.1
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#78731", "checkpoints keep inputs of segments alone, non-reentrant ones too"
)
@pytest.mark.report("pytorch/pytorch#77284", "checkpoints without reentry save memory")
def test_checkpoints_save_memory(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        from torch import nn
        from torch.utils.checkpoint import checkpoint

        def kept(use_reentrant):
            parts = [nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU()]
            model = nn.Sequential(*(nn.Sequential(*parts) for _ in range(4))).cuda()
            x = torch.randn(1024, 256, device="cuda", requires_grad=True)
            for _ in range(2):  # gradients exist the second time
                before, y = torch.cuda.memory_allocated(), x
                for layer in model:
                    if use_reentrant is None:
                        y = layer(y)
                    else:
                        y = checkpoint(layer, y, use_reentrant=use_reentrant)
                num_bytes = torch.cuda.memory_allocated() - before
                y.sum().backward()
                del y
            return num_bytes

        assert kept(None) > 2.9 * kept(True)
        assert kept(True) == kept(False)
        """
    )


@pytest.mark.report(
    "NVIDIA-NeMo/Megatron-Bridge#3487", "a snapshot has traces only where a history was recorded"
)
def test_snapshots(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        small = torch.empty(1000, device="cuda")
        snapshot = torch.cuda.memory._snapshot()
        assert not any(snapshot["device_traces"])
        (segment,) = snapshot["segments"]
        assert (segment["total_size"], segment["segment_type"]) == (2 << 20, "small")
        torch.cuda.memory._record_memory_history(max_entries=1000)
        large = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
        del large
        snapshot = torch.cuda.memory._snapshot()
        trace = snapshot["device_traces"][0]
        actions = ["segment_alloc", "alloc", "free_requested", "free_completed"]
        assert [entry["action"] for entry in trace] == actions
        assert any(frame["filename"] == "<test>" for frame in trace[-1]["frames"])
        assert torch.cuda.memory_reserved() == (2 << 20) + (20 << 20)
        """
    )


@pytest.mark.report("pytorch/pytorch:torch/cuda/memory.py", "the table of `torch.cuda.memory_summary`")
def test_summary(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        held = torch.empty(1 << 20, device="cuda")
        lines = torch.cuda.memory_summary().splitlines()
        assert "PyTorch CUDA memory summary, device ID 0" in lines[1]
        row = next(line for line in lines if line.startswith("| Allocated memory"))
        assert row.split("|")[2].split() == ["4096", "KiB"], row
        """
    )


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
    "freed memory stays reserved, and is not free, until `empty_cache`",
)
def test_freed_memory_stays_reserved(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        def taken():
            return (before - torch.cuda.mem_get_info()[0]) >> 20

        torch.cuda.init()
        before = torch.cuda.mem_get_info()[0]
        block = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        assert taken() == 100
        del block
        assert taken() == 100
        torch.cuda.empty_cache()
        assert taken() == 0
        address = torch.cuda.caching_allocator_alloc(1000)
        assert torch.cuda.memory_allocated() == 1024
        torch.cuda.caching_allocator_delete(address)
        assert torch.cuda.memory_allocated() == 0
        """
    )


@pytest.mark.report(
    "ROCm/legacy-rocm-build#6603", "one retry in 130 cycles of a fragmenting loop, and contents stay"
)
def test_contents_survive_a_retry(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        M = 1 << 20

        def block(num_bytes):
            return torch.empty(num_bytes, dtype=torch.uint8, device="cuda")

        canary, kept = block(64 * M).fill_(0xA5), []
        for cycle in range(130):
            pair = block(91 * M), block(91 * M // 2)
            kept.append(block(2 * M))
            del pair
            if torch.cuda.memory_stats()["num_alloc_retries"]:
                break
        stats = torch.cuda.memory_stats()
        found = cycle, torch.cuda.max_memory_reserved() // M, torch.cuda.memory_reserved() // M
        assert found == (115, 16000, 2680), found
        assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
        assert (canary == 0xA5).all()
        """,
        # A card's driver keeps memory of its own; with so much left the figures are the report's.
        {
            "TORCH_LOOM_MEMORY": "16040MiB",
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True",
        },
    )


HOLES = """
def holes(num_bytes):
    "Ten blocks, of which every second is freed."
    blocks = [torch.empty(num_bytes, dtype=torch.uint8, device="cuda") for _ in range(10)]
    del blocks[::2]
    return blocks
"""


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
    fork_cuda(
        HOLES
        + """
blocks = holes(1 << 30)
assert torch.cuda.memory_reserved() == 10 << 30
large = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
# Of an expandable segment whole pages of 20 MiB go back: at each of ten edges of holes a part of one stays.
more = torch.cuda.memory_reserved() - (13 << 30)
assert 0 <= more <= 10 * (20 << 20), more
""",
        {**SIXTEEN, **env},
    )


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
    fork_cuda(
        HOLES
        + """
blocks = holes(100 << 20)
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 500 << 20, torch.cuda.memory_reserved()
""",
        {**SIXTEEN, **env},
    )

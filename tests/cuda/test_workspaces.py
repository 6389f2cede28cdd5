"""The memory that libraries of matrix products keep on a GPU: when it is taken, how much, when it goes."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}
SETUP = """
import threading
import torch
MIB = 1 << 20

def kept(device=0):
    '''Return what products have left, beside tensors, which take less than a MiB here.'''
    return torch.cuda.memory_allocated(device) // MIB

def clear():
    torch._C._cuda_clearCublasWorkspaces()

x = torch.ones(8, 8, device="cuda", requires_grad=True)
"""


def test_the_first_product_of_a_stream_takes_it(warm_python: PythonRunner) -> None:
    warm_python(
        SETUP
        + """
(x + x).sum().item()
assert kept() == 0
with torch.no_grad():
    before = torch.cuda.memory_allocated()
    y = x @ x
    assert torch.cuda.memory_allocated() - before == 32 * MIB + 512
    torch.nn.functional.linear(x, x, x[0])  # cuBLASLt works in the same memory
    torch.bmm(x[None], x[None])
    assert kept() == 32
    clear()
    assert kept() == 0
    torch.outer(x[0], x[0]), torch.empty(0, 8, device="cuda") @ x  # neither calls the library
    assert kept() == 0
    for product in (
        lambda: torch.addmm(x, x, x), lambda: torch.baddbmm(x[None], x[None], x[None]), lambda: x @ x[0],
        lambda: torch.dot(x[0], x[0]), lambda: torch.addmv(x[0], x, x[0]),
        lambda: torch.einsum("ij,jk", x, x),
        lambda: torch.linalg.solve_triangular(x, x, upper=True), lambda: torch.nn.Linear(8, 8).cuda()(x),
    ):
        clear()
        product()
        assert kept() == 32, product
    clear()
    image, weight = torch.ones(1, 3, 8, 8, device="cuda"), torch.ones(2, 3, 3, 3, device="cuda")
    torch.nn.functional.conv2d(image, weight)  # cuDNN's own memory is given back at once
    assert kept() == 0
    with torch.backends.cudnn.flags(enabled=False):
        torch.nn.functional.conv2d(image, weight)
    assert kept() == 32
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x @ x
    assert kept() == 64
    other = torch.ones(8, 8, device="cuda:1")
    other @ other
    assert (kept(), kept(1)) == (64, 32)
    clear()
    assert (kept(), kept(1)) == (0, 0)
assert torch.cuda.memory_stats()["num_ooms"] == 0
""",
        NAME,
    )


def test_each_thread_has_a_handle_and_leaves_it_to_the_next(warm_python: PythonRunner) -> None:
    warm_python(
        SETUP
        + """
def run(*functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

y = x @ x
assert kept() == 32
y.sum().backward()  # the backward pass of a device has a thread of its own there
assert kept() == 64
run(lambda: x @ x)
assert kept() == 96
run(lambda: x @ x)
assert kept() == 96  # the thread before has ended
both = threading.Barrier(2)

def together():
    both.wait()
    x @ x
    both.wait()

run(together, together)
assert kept() == 128
run(lambda: (x @ x).sum().backward())
assert kept() == 128
""",
        NAME,
    )


@pytest.mark.parametrize(
    ("chip", "settings", "of_a_product", "with_a_bias"),
    [
        ("h200", {}, 32 << 20, 0),
        ("a100", {}, 8519680, 0),
        ("h200", {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"}, 8519680, 0),
        ("a100", {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, 16 * 8 * 1024, 0),
        ("h200", {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}, 0, 0),
        ("h200", {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"}, 32 << 20, 1 << 20),
        (
            "a100",
            {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0", "CUBLASLT_WORKSPACE_SIZE": "4096"},
            8519680,
            4 << 20,
        ),
    ],
)
def test_sizes(
    warm_python: PythonRunner, chip: str, settings: dict[str, str], of_a_product: int, with_a_bias: int
) -> None:
    warm_python(
        f"""
import torch
x = torch.ones(8, 8, device="cuda")
base = torch.cuda.memory_allocated()
torch.addmm(x[0], x, x)
assert torch.cuda.memory_allocated() - base == ({with_a_bias} or {of_a_product})
x @ x
assert torch.cuda.memory_allocated() - base == {of_a_product} + {with_a_bias}
assert torch.backends.cuda.cublas_workspace_size() == {of_a_product}
assert torch.backends.cuda.cublaslt_workspace_size() == ({with_a_bias} or {of_a_product})
torch._C._cuda_clearCublasWorkspaces()
assert torch.cuda.memory_allocated() == base
""",
        {**NAME, "TORCH_LOOM_CHIP": chip, **settings},
    )


def test_sizes_of_the_program(warm_python: PythonRunner) -> None:
    warm_python(
        SETUP
        + """
import warnings
with torch.no_grad():
    x @ x
    assert torch.backends.cuda.cublas_workspace_size(16 * MIB) == 16 * MIB
    x @ x
    assert kept() == 32  # large enough
    torch.backends.cuda.cublas_workspace_size(48 * MIB)
    assert kept() == 32
    x @ x
    assert kept() == 48  # the old one has gone
    torch._C._cuda_resetCublasWorkspaceSize()
    assert torch.backends.cuda.cublas_workspace_size() == 32 * MIB
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.backends.cuda.cublaslt_workspace_size(64 * MIB) == 32 * MIB
    assert "exceeds CUBLAS workspace size of 33554432 bytes" in str(caught[0].message)
try:
    torch._C._cuda_setCublasWorkspaceSize(-1)
except ValueError as error:
    assert "cannot have a negative size, got -1" in str(error)
else:
    raise AssertionError
""",
        NAME,
    )


def test_a_size_that_is_none(warm_python: PythonRunner) -> None:
    warm_python(
        SETUP
        + """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x @ x
text = "Could not parse CUBLAS_WORKSPACE_CONFIG, using default workspace size of 33554432 bytes."
assert len(caught) == 1 and str(caught[0].message).startswith(text), caught
assert kept() == 32
""",
        {**NAME, "CUBLAS_WORKSPACE_CONFIG": "large"},
    )


def test_captures_take_it_of_their_pool(warm_python: PythonRunner) -> None:
    warm_python(
        SETUP
        + """
def in_pool(pool):
    segments = [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]
    return sum(s["allocated_size"] for s in segments) // MIB

y = x.detach()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    z = y @ y
assert in_pool(graph.pool()) == 32 and kept() == 32
graph.replay()
assert z.tolist() == [[8.0] * 8] * 8
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again, pool=graph.pool()):
    y @ y  # on the same stream, in the same memory
assert in_pool(graph.pool()) == 32
pool = graph.pool()
del z, again
assert kept() == 0  # a graph's end clears the stream that it was captured on
del graph
torch.cuda.empty_cache()
assert in_pool(pool) == 0 and not [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]
""",
        NAME,
    )


def test_no_room_for_it(warm_python: PythonRunner) -> None:
    warm_python(
        """
import torch
x = torch.ones(8, 8, device="cuda")
filler = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
try:
    x @ x
except torch.OutOfMemoryError as error:
    assert "CUDA out of memory. Tried to allocate 32.00 MiB." in str(error)
else:
    raise AssertionError
del filler
assert (x @ x).sum().item() == 512
""",
        {**NAME, "TORCH_LOOM_MEMORY": "64MiB"},
    )


@pytest.mark.parametrize("environment", [{}, {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "loom1"}])
def test_other_devices_have_none(warm_python: PythonRunner, environment: dict[str, str]) -> None:
    warm_python(
        """
import torch
from torch_loom.device._core.device_index import DEVICE_TYPE
x = torch.ones(8, 8, device=DEVICE_TYPE)
base = torch.loom.memory_allocated()
x @ x
assert torch.loom.memory_allocated() == base
""",
        environment,
    )


def test_a_dry_run_has_its_own(warm_python: PythonRunner) -> None:
    warm_python(
        SETUP
        + """
x @ x
assert kept() == 32
with torch.loom.dry_run(chip="a100", devices=1) as plan:
    y = torch.empty(8, 8, device="cuda")
    y @ y
    assert torch.cuda.memory_allocated() == 8519680 + 512
    assert plan.memory_by_category()["workspace"] == 8519680
    clear()
    assert torch.cuda.memory_allocated() == 512
    y @ y
assert kept() == 32
clear()
assert kept() == 0
""",
        NAME,
    )

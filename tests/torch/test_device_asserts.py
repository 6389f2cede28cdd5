"""TORCH_LOOM_ASSERTS=device: what values cause is raised where the host waits; nothing runs afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

START = """
import os
os.environ.update(TORCH_LOOM_ASSERTS="device", TORCH_LOOM_MEMORY="1GiB")
import torch, torch_loom
import torch.nn.functional as F
torch.set_num_threads(1)
x, i = torch.ones(3, 4, device="loom"), torch.tensor([0, 7], device="loom")

def asserts(*calls):
    for call in calls:
        try:
            call()
        except torch.AcceleratorError as error:
            assert "LOOM error: device-side assert triggered" in str(error), error
        else:
            raise AssertionError("no error")
"""

OPS = {
    "index_select": ("x.index_select(0, i)", (2, 4)),
    "gather": ("x.gather(0, i[:, None])", (2, 1)),
    "scatter_": ("x.scatter_(0, i[:, None], 1.0)", (3, 4)),
    "index": ("x[:, i]", (3, 2)),
    "index_put_": ("x.index_put_((i,), torch.zeros(2, 4, device='loom'))", (3, 4)),
    "embedding": ("F.embedding(i, x)", (2, 4)),
    "nll_loss": ("F.cross_entropy(x[:2], i)", ()),
    "take": ("x.take(i * 7)", (2,)),
    "out": ("torch.index_select(x, 0, i, out=torch.empty(0, device='loom'))", (2, 4)),
    "bernoulli": ("torch.bernoulli(x * 2)", (3, 4)),
    "multinomial": ("torch.multinomial(-x, 2, replacement=True)", (3, 2)),
    "binary_cross_entropy": ("F.binary_cross_entropy(x * 2, x)", ()),
    "_assert_async": ("torch._assert_async(x[0, 0] == 2) or x", (3, 4)),
}


# One that runs by itself, one in place, one boxed, one without indices.
FIRST = {"index_select", "scatter_", "index", "_assert_async"}


@pytest.mark.parametrize(
    "op", [op if op in FIRST else pytest.param(op, marks=pytest.mark.slow) for op in OPS]
)
def test_the_wait_raises_and_nothing_runs_afterwards(op: str, fork_loom: PythonRunner) -> None:
    call, shape = OPS[op]
    done = fork_loom(
        START
        + f"""
y = {call}
assert y.shape == {shape} and y.device.type == "loom"
z = y * 2  # launches go on until somebody waits
waits = [lambda: z.sum().item(), torch.loom.synchronize, z.cpu, lambda: z.to("loom:1")]
asserts(*waits, lambda: x + 1, lambda: torch.zeros(2, device="loom"), torch.loom.synchronize)
del x, y, z
"""
    )
    assert done.returncode == 0


WAITS = {
    "synchronize": "torch.loom.synchronize()",
    "stream": "torch.loom.current_stream().synchronize()",
    "event": "e = torch.loom.Event(); e.record(); e.synchronize()",
    "item": "z.sum().item()",
    "tolist": "z.tolist()",
    "nonzero": "z.nonzero()",
    "print": "repr(z)",
    "query": "torch.loom.current_stream().query()",
    "query of an event": "e = torch.loom.Event(); e.record(); e.query()",
}


@pytest.mark.parametrize(
    "wait",
    [
        wait if wait in ("item", "event", "query") else pytest.param(wait, marks=pytest.mark.slow)
        for wait in WAITS
    ],
)
def test_every_wait_raises(wait: str, fork_loom: PythonRunner) -> None:
    fork_loom(START + f"z = x[i]\ndef wait():\n    {WAITS[wait]}\nasserts(wait)\n")


def test_side_streams(fork_loom: PythonRunner) -> None:
    fork_loom(
        START
        + """
good = torch.tensor([0, 1], device="loom")
x[good]
side = torch.loom.Stream()
with torch.loom.stream(side):
    torch.loom._sleep(1000)
    y = x[i]
assert y.shape == (2, 4)
asserts(side.synchronize, lambda: x + 1, torch.loom.synchronize)
"""
    )


def test_a_replay_is_a_launch(fork_loom: PythonRunner) -> None:
    fork_loom(
        START
        + """
i.fill_(1)
graph = torch.loom.CUDAGraph()
with torch.loom.graph(graph):
    y = x.index_select(0, i) + 1
graph.replay()
assert y.sum().item() == 16
i.fill_(9)
graph.replay()  # as on a GPU: nobody has waited yet
asserts(torch.loom.synchronize, graph.replay, y.cpu)
"""
    )


def test_no_kernel_reads_what_an_assert_left(fork_loom: PythonRunner) -> None:
    # The backward pass would read indices and offsets that are out of range or undefined.
    fork_loom(
        START
        + """
w = torch.ones(3, 4, device="loom", requires_grad=True)
loss = F.embedding_bag(i[None], w, mode="sum").sum() + F.embedding_bag(i[None], w, mode="max").sum()
loss.backward()
assert w.grad.shape == w.shape
asserts(w.grad.cpu, lambda: w.nonzero())
"""
    )


def test_operands_that_share_memory_are_no_value(fork_loom: PythonRunner) -> None:
    fork_loom(
        START
        + """
i = torch.tensor([0, 1], device="loom")
try:
    x.index_put_((i,), x[:2], accumulate=True)
except RuntimeError as error:
    assert "single memory location" in str(error) and not isinstance(error, torch.AcceleratorError)
else:
    raise AssertionError("no error")
assert x.sum().item() == 12
j = torch.tensor([0, 7], device="loom")
x.scatter_add_(0, j[:, None].expand(2, 4), x.new_ones(2, 4))
asserts(torch.loom.synchronize)
"""
    )


@pytest.mark.slow
def test_the_line_is_the_programs(warm_python: PythonRunner) -> None:
    done = warm_python(
        """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(3, 4)
            def forward(self, i):
                return self.table(i)  # line 9

        net = torch.nn.DataParallel(Net().cuda())
        net(torch.tensor([0, 9, 1, 2], device="cuda"))
        torch.cuda.synchronize()
        """,
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB", "TORCH_LOOM_DEVICES": "2"},
        check=False,
    )
    assert ":9): index out of range" in done.stderr
    assert "threading.py" not in done.stderr.partition("device-side assert: ")[2].splitlines()[0]


def test_errors_of_hosts_stay_where_they_are(fork_loom: PythonRunner) -> None:
    fork_loom(
        START
        + """
def says(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError("no error")

says(RuntimeError, lambda: x @ x)
says(IndexError, lambda: x.index_select(5, i))
says(RuntimeError, lambda: x.gather(0, i))
says(RuntimeError, lambda: x.index_select(0, i.double()))
says(torch.linalg.LinAlgError, lambda: torch.linalg.cholesky(-torch.eye(3, device="loom")))
says(RuntimeError, lambda: torch.normal(x, -x))
says(RuntimeError, lambda: torch.bincount(-i))
says(RuntimeError, lambda: torch.segment_reduce(x.flatten(), "sum", lengths=i))
says(RuntimeError, lambda: x.to("meta") + x)
assert (x + 1).sum().item() == 24
"""
    )


def test_whole_numbers_divide_by_zero(fork_loom: PythonRunner) -> None:
    fork_loom(
        START
        + """
a, b = torch.tensor([7, 9, -8], device="loom"), torch.tensor([2, 0, 3], device="loom")
host = a.cpu(), torch.tensor([2, 1, 3])
side = torch.loom.Stream()
for dtype in (torch.int64, torch.int32, torch.uint8):
    for op in (torch.remainder, torch.fmod, torch.floor_divide,
               lambda a, b: torch.div(a, b, rounding_mode="trunc"),
               lambda a, b: a.clone().floor_divide_(b), lambda a, b: a.clone().remainder_(b)):
        expected = op(*(part.to(dtype) for part in host))[::2]
        assert torch.equal(op(a.to(dtype), b.to(dtype)).cpu()[::2], expected)
        with torch.loom.stream(side):
            y = op(a.to(dtype), b.to(dtype))
            torch.loom._sleep(1000)
            y = op(a.to(dtype), b.to(dtype))
            side.synchronize()
        assert torch.equal(y.cpu()[::2], expected) and y.dtype == dtype
assert (a % 0).shape == (a // 0).shape == (5 % (a * 0)).shape == (3,)
torch.loom.synchronize()
"""
    )


@pytest.mark.slow
def test_blocking_raises_at_the_op(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x, i = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
        try:
            x[i]
        except torch.AcceleratorError as error:
            assert "CUDA error: device-side assert triggered" in str(error), error
            assert "aten::index.Tensor" in str(error), error
        else:
            raise AssertionError("no error")
        """,
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "CUDA_LAUNCH_BLOCKING": "1", "TORCH_LOOM_MEMORY": "1GiB"},
    )


@pytest.mark.slow
def test_cuda_asserts_unless_told_otherwise(warm_python: PythonRunner) -> None:
    program = """
        import torch
        y = torch.ones(3, device="cuda").index_select(0, torch.tensor([7], device="cuda"))
        torch.cuda.synchronize()
        """
    names = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}
    done = warm_python(program, names, check=False)
    assert done.returncode == 1
    assert "torch.AcceleratorError: CUDA error: device-side assert triggered" in done.stderr
    assert "cuda: device-side assert: aten::index_select" in done.stderr
    done = warm_python(program, {**names, "TORCH_LOOM_ASSERTS": "immediate"}, check=False)
    assert "IndexError" in done.stderr.splitlines()[-1]

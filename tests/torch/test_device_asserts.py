"""TORCH_LOOM_ASSERTS=device: what values cause is raised where the host waits; nothing runs afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "device_asserts"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


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
    done = fork_loom(PROGRAMS / "the_wait_raises_and_nothing_runs_afterwards.py", given=(call, shape))
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
    fork_loom(PROGRAMS / "every_wait_raises.py", given=WAITS[wait])


def test_side_streams(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "side_streams.py")


def test_a_replay_is_a_launch(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "a_replay_is_a_launch.py")


def test_no_kernel_reads_what_an_assert_left(fork_loom: PythonRunner) -> None:
    # The backward pass would read indices and offsets that are out of range or undefined.
    fork_loom(PROGRAMS / "no_kernel_reads_what_an_assert_left.py")


def test_operands_that_share_memory_are_no_value(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "operands_that_share_memory_are_no_value.py")


@pytest.mark.slow
def test_the_line_is_the_programs(warm_python: PythonRunner) -> None:
    done = warm_python(
        PROGRAMS / "the_line_is_the_programs.py",
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB", "TORCH_LOOM_DEVICES": "2"},
        check=False,
    )
    assert ":10): index out of range" in done.stderr
    assert "threading.py" not in done.stderr.partition("device-side assert: ")[2].splitlines()[0]


def test_errors_of_hosts_stay_where_they_are(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "errors_of_hosts_stay_where_they_are.py")


def test_calls_without_elements(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "calls_without_elements.py")


def test_whole_numbers_divide_by_zero(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "whole_numbers_divide_by_zero.py")


@pytest.mark.slow
def test_blocking_raises_at_the_op(warm_python: PythonRunner) -> None:
    warm_python(
        PROGRAMS / "blocking_raises_at_the_op.py",
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "CUDA_LAUNCH_BLOCKING": "1", "TORCH_LOOM_MEMORY": "1GiB"},
    )


@pytest.mark.slow
def test_cuda_asserts_unless_told_otherwise(warm_python: PythonRunner) -> None:
    names = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}
    done = warm_python(PROGRAMS / "cuda_asserts_unless_told_otherwise.py", names, check=False)
    assert done.returncode == 1
    assert "torch.AcceleratorError: CUDA error: device-side assert triggered" in done.stderr
    assert "cuda: device-side assert: aten::index_select" in done.stderr
    done = warm_python(
        PROGRAMS / "cuda_asserts_unless_told_otherwise.py",
        {**names, "TORCH_LOOM_ASSERTS": "immediate"},
        check=False,
    )
    assert "IndexError" in done.stderr.splitlines()[-1]

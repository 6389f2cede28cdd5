"""``mode="reduce-overhead"`` and ``backend="cudagraphs"`` in CUDA's name: PyTorch's own trees of graphs."""

from __future__ import annotations

import textwrap

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}

HEAD = """
import torch
from torch._inductor import config
from torch._inductor.cudagraph_trees import get_manager
config.compile_threads, config.cpp_cache_precompile_headers = 1, False
config.triton.slow_path_cudagraph_asserts = True

OVERWRITTEN = (
    "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. Stack trace: "
)
WAY_OUT = (
    "To prevent overwriting, clone the tensor outside of torch.compile() or call "
    "torch.compiler.cudagraph_mark_step_begin() before each model invocation."
)

def is_overwritten(read):
    try:
        read()
    except RuntimeError as error:
        assert OVERWRITTEN in str(error) and WAY_OUT in str(error), error
        return True
    return False

def num_graphs(device=0):
    manager = get_manager(device)
    return sum(1 + root.num_descendants() for root in manager.get_roots())
"""


@pytest.mark.slow
def test_reading_a_result_that_a_later_run_has_overwritten(warm_python: PythonRunner) -> None:
    warm_python(
        HEAD
        + textwrap.dedent("""
        f = torch.compile(lambda x: x @ x, mode="reduce-overhead")
        x = torch.eye(4, device="cuda") * 3
        first, second = f(x), f(x)  # as it is, and captured
        for read in (
            lambda: first.sum(), lambda: first + 1, lambda: first.cpu(), lambda: first.clone(),
            lambda: first[0], lambda: first.view(16), lambda: print(first), lambda: first.data_ptr(),
            lambda: first.add_(1), lambda: torch.cat([x, first]), lambda: x.copy_(first), first.tolist,
        ):
            assert is_overwritten(read)
        assert first.shape == (4, 4) and first.device.type == "cuda"
        assert second.diagonal().tolist() == [9] * 4
        third = f(x * 2)
        assert is_overwritten(second.sum)
        view, copy = third.t(), third.clone()
        del third
        fourth = f(x * 3)
        assert fourth[0, 0].item() == 81 and copy[0, 0].item() == 36
        # From then on the results of one graph are one tensor.
        assert f(x) is fourth and fourth[0, 0].item() == 9
        assert num_graphs() == 1

        # One function after the other, in one step and in two.
        torch._dynamo.reset()
        f = torch.compile(lambda x: x + 1, mode="reduce-overhead")
        g = torch.compile(lambda x: x + 1, mode="reduce-overhead")
        x = torch.ones(2, device="cuda")
        assert is_overwritten(lambda: g(f(x)) - x)
        torch._dynamo.reset()
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            y = f(x).clone()
            assert g(y).tolist() == [3, 3] and y.tolist() == [2, 2]
        torch._dynamo.reset()
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            y = f(x)
            assert g(y).tolist() == [3, 3] and y.tolist() == [2, 2]
        """),
        NAME,
    )


@pytest.mark.slow
def test_training(warm_python: PythonRunner) -> None:
    warm_python(
        HEAD
        + textwrap.dedent("""
        from torch import nn
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.0)).cuda()
        plain = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).cuda()
        plain.load_state_dict(model.state_dict())
        compiled = torch.compile(model, backend="cudagraphs")
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, plain)]
        for number in range(6):
            x = torch.randn(4, 8, device="cuda")
            results = []
            for each, optimizer in zip((compiled, plain), optimizers, strict=True):
                optimizer.zero_grad()
                loss = each(x).square().mean()
                loss.backward()
                optimizer.step()
                results.append(loss.item())
            assert abs(results[0] - results[1]) < 1e-5, (number, results)
        assert torch.equal(model[1].num_batches_tracked, plain[1].num_batches_tracked)
        assert torch.allclose(model[1].running_mean, plain[1].running_mean)
        assert num_graphs() == 2  # forward and backward
        with torch.no_grad():
            for _ in range(3):
                assert torch.allclose(compiled(x), plain(x), atol=1e-5)
        # A graph with a tensor of the host is not captured, and its backward pass runs all the same.
        mixed = torch.compile(lambda a, b: a + b.cuda(), backend="cudagraphs")
        a = torch.ones(3, device="cuda", requires_grad=True)
        mixed(a, torch.ones(3)).sum().backward()
        assert a.grad.tolist() == [1, 1, 1]
        """),
        NAME,
    )


@pytest.mark.slow
def test_sizes_mutation_devices_and_memory(warm_python: PythonRunner) -> None:
    warm_python(
        HEAD
        + textwrap.dedent("""
        import gc
        f = torch.compile(lambda x: (x * 2).sum(0), backend="cudagraphs", dynamic=False)
        for device in ("cuda:0", "cuda:1"):
            for rows in (2, 3, 2, 3, 2, 3):
                x = torch.ones(rows, 4, device=device)
                assert f(x).tolist() == [2 * rows] * 4
        assert num_graphs(0) == num_graphs(1) == 2

        # An input that is changed is no parameter: the function runs as it is.
        change = torch.compile(lambda x: x.add_(1), backend="cudagraphs")
        x = torch.zeros(2, device="cuda")
        for number in range(1, 5):
            change(x)
            assert x.tolist() == [number] * 2

        # What is alive when another function is captured keeps its memory, and what is dead gives it up.
        torch._dynamo.reset()
        first = torch.compile(lambda x: [x + 1, x + 2], backend="cudagraphs")
        second = torch.compile(lambda x: x * 3, backend="cudagraphs")
        third = torch.compile(lambda x: x * 5, backend="cudagraphs")
        x = torch.ones(64, device="cuda")
        for number in range(6):
            torch.compiler.cudagraph_mark_step_begin()
            kept, dropped = first(x)
            if number % 2:
                del dropped
            result = (second if number < 4 else third)(kept)
            assert kept[0].item() == 2 and result[0].item() == (6 if number < 4 else 10), number
        del kept, result
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_allocated() <= 2048, torch.cuda.memory_allocated()
        """),
        NAME,
    )

"""CUDA graphs: what a capture refuses, and what a replay draws, reads and overwrites."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

TWO_DEVICES = """
import torch.nn.functional as F
device = torch.device("cuda:1")
w = torch.randn(32, 32, device=device, requires_grad=True)
x = torch.rand(4, 32, device=device, requires_grad=True)

def loss_of():
    return F.linear(F.softplus(F.linear(x, w)), w).sum()

def captured_with(current):
    "The loss and the gradient of a replay, captured under a current device."
    with torch.cuda.device(current):
        side = torch.cuda.Stream(device=device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):
                loss_of().backward()
        torch.cuda.current_stream(device).wait_stream(side)
        w.grad = x.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = loss_of()
            loss.backward()
        graph.replay()
        torch.cuda.synchronize(device)
        return loss, x.grad
"""

# The first error of a capture, and what leaves `with torch.cuda.graph(…)` because of it.
FAILED = """
def errors_of(capture):
    "The error that a program sees of a capture that fails, and the one before it."
    try:
        capture()
    except Exception as error:
        return error, error.__context__
    raise AssertionError("captured")

def assert_failed(capture):
    last, first = errors_of(capture)
    assert type(last) is type(first) is torch.AcceleratorError, (last, first)
    assert "CUDA error: operation failed due to a previous error during capture" in str(last), last
    assert "CUDA error: operation not permitted when stream is capturing" in str(first), first
"""


@pytest.mark.report("pytorch/pytorch#87794", "captured while another device is the current one")
def test_data_of_another_device(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        TWO_DEVICES
        + """
raises("AcceleratorError", "CUDA error: operation", lambda: captured_with(0))
""",
        {"TORCH_LOOM_DEVICES": "2"},
    )


@pytest.mark.report("pytorch/pytorch#87794", "captured where the data are, as the thread advises")
def test_data_of_the_current_device(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        TWO_DEVICES
        + """
loss, gradient = captured_with(1)
torch.testing.assert_close(loss, loss_of())
torch.testing.assert_close(gradient, torch.autograd.grad(loss_of(), x)[0])
""",
        {"TORCH_LOOM_DEVICES": "2"},
    )


@pytest.mark.report("pytorch/pytorch#124582", "a tensor made of numbers within a captured callable")
def test_numbers_of_the_host_are_not_captured(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        FAILED
        + """
def take_first(x):
    return torch.gather(x, 0, torch.tensor([0], device=x.device))

assert_failed(lambda: torch.cuda.make_graphed_callables(take_first, (torch.randn(1, device="cuda"),)))
"""
    )


@pytest.mark.report(
    "pytorch/pytorch#124582", "a callable without parameters or gradients, its index made outside"
)
def test_a_callable_without_gradients(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        index = torch.tensor([0], device="cuda")
        sample, x = torch.randn(2, 1, device="cuda")
        take = torch.cuda.make_graphed_callables(lambda x: torch.gather(x, 0, index), (sample,))
        assert torch.equal(take(x), x)
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#84614", "dropout in a graphed callable: a new mask each replay, eager's under one seed"
)
def test_masks_of_replays(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        x = torch.randn(20, 16, 8, 8, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(torch.nn.Dropout(0.2), (x,))
        results = []
        for dropout in (torch.nn.Dropout(0.2), graphed):
            torch.manual_seed(0)
            y = x.clone()
            for _ in range(3):
                before, y = y, dropout(y).clone()
                assert not torch.equal(before, y)
            results.append(y)
        assert torch.equal(*results)
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#181723",
    "parameters take the gradients of a graphed callable, which the next replay overwrites",
)
def test_gradients_are_the_graphs_own(fork_cuda: PythonRunner) -> None:
    # The first gradient becomes `.grad` without a copy, so that each later one is added to itself.
    fork_cuda(
        """
        import copy
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4).cuda()
        eager, batches = copy.deepcopy(model), torch.randn(3, 3, 4, device="cuda")
        graphed = torch.cuda.make_graphed_callables(model, (torch.randn(3, 4, device="cuda"),))
        model.zero_grad()
        for x in batches:
            graphed(x).square().sum().backward()
        eager(batches[-1]).square().sum().backward()
        torch.testing.assert_close(model.weight.grad, 2 * eager.weight.grad)
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#128396", "the gradient of `prod` asks the device how many zeros there are"
)
def test_the_gradient_of_prod_is_not_captured(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        FAILED
        + """
class Product(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8, device="cuda")

    def forward(self, x):
        return torch.prod(self.layer(x), 1)

assert_failed(lambda: torch.cuda.make_graphed_callables(Product(), (torch.randn(8, 8, device="cuda"),)))
assert not torch.cuda.is_current_stream_capturing()
assert Product()(torch.ones(8, 8, device="cuda")).shape == (8,)
"""
    )


@pytest.mark.report("pytorch/pytorch#102830", "an input of a graphed callable that is no leaf")
def test_an_input_with_a_history(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        a, b = (torch.randn(1, 4, 8, 3, 3, device="cuda") for _ in range(2))
        t = torch.randn(1, 4, 8, 2, device="cuda", requires_grad=True)
        b[..., 1, 1] = t[..., 1]
        raises(
            "RuntimeError",
            "'torch::autograd::CopySlices' has a stale reference to the default stream",
            lambda: torch.cuda.make_graphed_callables(lambda x, y: x + y, (a, b)),
        )
        """
    )


OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"


@pytest.mark.slow
@pytest.mark.report(
    "pytorch/pytorch#170604", "`reduce-overhead`: a result that a later call has overwritten is read"
)
@pytest.mark.report("pytorch/pytorch#144386", "`reduce-overhead`: the ways out, a clone and a mark of steps")
def test_results_of_an_earlier_call(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        square = torch.compile(lambda x: x @ x, mode="reduce-overhead")
        x = torch.eye(4, device="cuda")
        # Replays return the very same tensor again, so that nothing older is left to be read.
        first = square(x)
        kept = first.clone()
        second = square(x)
        raises("RuntimeError", {OVERWRITTEN!r}, lambda: first.sum())
        assert kept.sum().item() == second.sum().item() == 4
        """
    )


@pytest.mark.slow
@pytest.mark.report(
    "pytorch/pytorch#160281", "`reduce-overhead`: one compiled function's result is another's input"
)
def test_a_chain_of_compiled_functions(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        first = torch.compile(lambda x: x + 1, mode="reduce-overhead")
        second = torch.compile(lambda x: x + 1, mode="reduce-overhead")
        x = torch.zeros(2, device="cuda")
        raises("RuntimeError", {OVERWRITTEN!r}, lambda: second(first(x)).tolist())
        assert second(first(x).clone()).tolist() == [2, 2]
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#77673", "`is_current_stream_capturing` before, during and after a capture"
)
def test_whether_a_stream_captures(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        is_capturing = torch.cuda.is_current_stream_capturing
        x, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
        assert not is_capturing()
        with torch.cuda.graph(graph):
            assert is_capturing()
            y = x * 2
        assert not is_capturing()
        x.fill_(5)
        graph.replay()
        assert y.tolist() == [10, 10, 10]
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.cuda.empty_cache()  # nothing that waits
            z = x * 3
        raises("RuntimeError", "replay", torch.cuda.CUDAGraph().replay)
        """
    )


BREAKING = {
    "item": "x.sum().item()",
    "cpu": "x.cpu()",
    "from the host": "torch.ones(3).cuda()",
    "synchronize": "torch.cuda.synchronize()",
    "synchronize a stream": "torch.cuda.current_stream().synchronize()",
    "query": "torch.cuda.current_stream().query()",
    "nonzero": "x.nonzero()",
    "mask": "x[x > 0]",
}


@pytest.mark.report(
    "pytorch/pytorch#77673", "what waits for the device makes a capture fail, in CUDA's words"
)
@pytest.mark.parametrize("name", BREAKING)
def test_what_waits_breaks_a_capture(fork_cuda: PythonRunner, name: str) -> None:
    fork_cuda(
        FAILED
        + f"""
x = torch.ones(3, device="cuda")

def capture():
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        {BREAKING[name]}

assert_failed(capture)
torch.cuda.synchronize()
assert (x + 1).tolist() == [2, 2, 2]
"""
    )


@pytest.mark.report("pytorch/pytorch#77673", "generators within a capture: registered ones draw, seeds stay")
def test_generators_of_a_capture(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        own = torch.Generator("cuda")

        def capture(body):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                body()

        raises("RuntimeError", "", lambda: capture(lambda: torch.rand(3, device="cuda", generator=own)))
        raises("RuntimeError", "seed", lambda: capture(lambda: torch.cuda.manual_seed(3)))
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(own)
        with torch.cuda.graph(graph):
            drawn = torch.rand(3, device="cuda", generator=own)
        own.manual_seed(7)
        graph.replay()
        again = torch.rand(3, device="cuda", generator=torch.Generator("cuda").manual_seed(7))
        assert torch.equal(drawn, again)
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#76247", "out of memory within a capture is out of memory, and work goes on"
)
def test_out_of_memory_within_a_capture(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        def capture():
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.zeros(2**40, device="cuda")

        raises("OutOfMemoryError", "CUDA out of memory. Tried to allocate 4096.00 GiB", capture)
        assert not torch.cuda.is_current_stream_capturing()
        assert (torch.ones(2, device="cuda") + 1).tolist() == [2, 2]
        """
    )


@pytest.mark.report(
    "pytorch/pytorch#87894",
    "captured on a device that the work is not on: the graph is empty, with a warning",
)
def test_a_capture_without_work(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        import warnings
        x, y = torch.randn(2, 10, device="cuda:0")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(1), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.cuda.graph(graph):
                z = x + y
        assert any("The CUDA Graph is empty" in str(one.message) for one in caught)
        first = z.clone()
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(z, first)
        """,
        {"TORCH_LOOM_DEVICES": "2"},
    )

"""Captures that fail, in CUDA's name: the words, types and order of CUDA's errors."""

from __future__ import annotations

import textwrap

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}

HEAD = """
import threading, warnings
import torch

NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
PREVIOUS = "CUDA error: operation failed due to a previous error during capture"

def captured(body, **options):
    graph = torch.cuda.CUDAGraph()
    try:
        with warnings.catch_warnings(), torch.cuda.graph(graph, **options):
            warnings.simplefilter("ignore")
            body()
    except Exception as error:
        return graph, error
    return graph, None

def first_line(error):
    return str(error).splitlines()[0]
"""


@pytest.mark.slow
def test_what_waits_for_the_device_makes_the_capture_fail(warm_python: PythonRunner) -> None:
    warm_python(
        HEAD
        + textwrap.dedent("""
        x = torch.rand(4, 4, device="cuda") + torch.eye(4, device="cuda")
        mask, numbers = x > 0.5, torch.arange(4, device="cuda")
        stream = torch.cuda.Stream()
        event = torch.cuda.Event()
        calls = {
            "item": lambda: x.sum().item(),
            "tolist": lambda: x.tolist(),
            "bool": lambda: bool(mask.any()),
            "cpu": lambda: x.cpu(),
            "cuda": lambda: torch.ones(3).cuda(),
            "tensor": lambda: torch.tensor([0], device="cuda"),
            "equal": lambda: torch.equal(x, x + 0),
            "nonzero": lambda: x.nonzero(),
            "where": lambda: torch.where(mask),
            "masked_select": lambda: x.masked_select(mask),
            "index": lambda: x[mask],
            "unique": lambda: x.unique(),
            "bincount": lambda: numbers.bincount(),
            "repeat_interleave": lambda: x.repeat_interleave(numbers, 0),
            "one_hot": lambda: torch.nn.functional.one_hot(numbers),
            "inverse": lambda: torch.linalg.inv(x),
            "repr": lambda: repr(x),
            "synchronize": torch.cuda.synchronize,
            "stream.synchronize": lambda: torch.cuda.current_stream().synchronize(),
            "stream.query": lambda: torch.cuda.current_stream().query(),
            "another stream": stream.synchronize,
            "another event": event.synchronize,
        }
        event.record()
        for name, call in calls.items():
            graph, error = captured(call)
            first = error.__context__
            assert type(error) is type(first) is torch.AcceleratorError, (name, error, first)
            assert first_line(error) == PREVIOUS and first_line(first) == NOT_PERMITTED, (name, error, first)
            assert (error.error_code, first.error_code) == (901, 900)
            for text in ("cudaErrorStreamCaptureUnsupported", "CUDA_LAUNCH_BLOCKING=1", "TORCH_USE_CUDA_DSA"):
                assert text in str(first), name
            assert not torch.cuda.is_current_stream_capturing()
            assert torch.cuda.current_stream() == torch.cuda.default_stream()
            try:
                graph.replay()
            except RuntimeError as error:
                assert str(error).startswith(
                    "Called CUDAGraph::replay without a preceding successful capture."
                )
            else:
                raise AssertionError(name)
        torch.cuda.synchronize()
        assert (x + 1).sum().item() > 16
        graph, error = captured(lambda: x.fill_(5))
        assert error is None
        graph.replay()
        assert x.sum().item() == 80
        """),
        NAME,
    )


@pytest.mark.slow
def test_errors_that_are_not_the_captures_leave_it(warm_python: PythonRunner) -> None:
    warm_python(
        HEAD
        + textwrap.dedent("""
        x = torch.ones(3, device="cuda")

        def fail():
            x.add_(1)
            raise KeyError("mine")

        graph, error = captured(fail)
        assert type(error) is KeyError and not torch.cuda.is_current_stream_capturing()
        graph.replay()  # what was captured before
        assert x.tolist() == [2, 2, 2]

        _, error = captured(lambda: torch.zeros(2**40, device="cuda"))
        assert type(error) is torch.OutOfMemoryError

        own = torch.Generator("cuda")
        draw = lambda: torch.rand(3, device="cuda", generator=own)
        _, error = captured(draw)
        assert type(error) is RuntimeError
        assert "Attempt to increase offset for a CUDA generator not in capture mode." in str(error)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(own)
        with torch.cuda.graph(graph):
            drawn = draw()
        graph.replay()
        first = drawn.tolist()
        graph.replay()
        assert drawn.tolist() != first

        _, error = captured(lambda: torch.cuda.manual_seed(3))
        assert type(error) is RuntimeError and "during stream capture" in str(error)
        _, error = captured(lambda: torch.cuda.default_stream().wait_stream(torch.cuda.current_stream()))
        assert first_line(error) == PREVIOUS
        assert first_line(error.__context__) == (
            "CUDA error: operation would make the legacy stream depend on a capturing blocking stream"
        )
        with torch.cuda.device(1), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                z = x + 1
            graph.replay()
            torch.cuda.synchronize()
        assert ["The CUDA Graph is empty" in str(one.message) for one in warned] == [True]
        assert z.tolist() == [3, 3, 3]
        """),
        NAME,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "elsewhere", "here"),
    [("global", True, True), ("thread_local", False, True), ("relaxed", False, False)],
)
def test_memory_that_no_capture_takes_for_itself(
    warm_python: PythonRunner, mode: str, elsewhere: bool, here: bool
) -> None:
    # As cudaMalloc: of another thread, and of another device of the same one.
    warm_python(
        HEAD
        + textwrap.dedent(f"""
        x, raised = torch.ones(3, device="cuda"), []

        def allocate():
            try:
                torch.empty(64 << 20, device="cuda:1", dtype=torch.uint8)
            except torch.AcceleratorError as error:
                raised.append(first_line(error))

        def in_thread():
            x.add_(1)
            torch.empty(64 << 20, device="cuda", dtype=torch.uint8)  # the graph's
            thread = threading.Thread(target=allocate)
            thread.start()
            thread.join()

        def is_invalid(error):
            return error is not None and first_line(error) == PREVIOUS

        _, error = captured(in_thread, capture_error_mode={mode!r})
        assert raised == [NOT_PERMITTED] * {elsewhere} and is_invalid(error) == {elsewhere}, (raised, error)
        torch.cuda.empty_cache()
        raised.clear()
        _, error = captured(lambda: (x.add_(1), allocate()), capture_error_mode={mode!r})
        assert raised == [NOT_PERMITTED] * {here} and is_invalid(error) == {here}, (raised, error)
        """),
        NAME,
    )


@pytest.mark.slow
def test_graphed_callables(warm_python: PythonRunner) -> None:
    warm_python(
        HEAD
        + textwrap.dedent("""
        from torch import nn

        class Product(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 8, device="cuda")

            def forward(self, x):
                return torch.prod(self.layer(x), 1)

        sample = torch.randn(4, 8, device="cuda")
        for function in (Product(), lambda x: x.gather(0, torch.tensor([[0]], device="cuda"))):
            try:
                torch.cuda.make_graphed_callables(function, (sample,))
            except torch.AcceleratorError as error:
                assert first_line(error) == PREVIOUS and first_line(error.__context__) == NOT_PERMITTED
            else:
                raise AssertionError(function)
        index = torch.tensor([[0]], device="cuda")
        gathered = torch.cuda.make_graphed_callables(lambda x: x.gather(0, index), (sample,))
        y = torch.randn(4, 8, device="cuda")
        assert torch.equal(gathered(y), y[:1, :1])

        # New masks in each replay, and after the same seed eager's.
        x = torch.randn(20, 16, device="cuda", requires_grad=True)
        dropout = torch.cuda.make_graphed_callables(nn.Dropout(0.2), (x,))
        results = []
        for function in (nn.Dropout(0.2), dropout):
            torch.manual_seed(0)
            results.append([function(x).clone() for _ in range(3)])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
        assert not torch.equal(results[0][0], results[0][1])

        # Gradients are static: a parameter's takes the memory of the first, which the next replay overwrites.
        layer = torch.cuda.make_graphed_callables(nn.Linear(8, 8, device="cuda"), (sample,))
        twin = nn.Linear(8, 8, device="cuda")
        twin.load_state_dict(layer.state_dict())
        layer.zero_grad()
        for number in range(3):
            y = torch.randn(4, 8, device="cuda")
            twin.zero_grad()
            layer(y).square().sum().backward()
            twin(y).square().sum().backward()
            times = 1 if number == 0 else 2
            torch.testing.assert_close(layer.weight.grad, times * twin.weight.grad)
        """),
        NAME,
    )

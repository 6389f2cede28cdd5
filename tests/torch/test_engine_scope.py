"""What an op runs on its engine is part of that op: no tracer, profile, mode or transform sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "engine_scope"

DEVICE = torch.device(torch._C._get_privateuse1_backend_name())

LAYERS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "conv1d": lambda: (nn.Conv1d(2, 3, 2), (1, 2, 5)),
    "conv2d": lambda: (nn.Conv2d(1, 1, 2), (1, 1, 3, 3)),
    "conv3d": lambda: (nn.Conv3d(1, 2, 2), (1, 1, 3, 3, 3)),
    "transposed": lambda: (nn.ConvTranspose2d(1, 2, 2, stride=2), (1, 1, 3, 3)),
    "grouped": lambda: (nn.Conv2d(4, 4, 3, groups=2, padding=1), (2, 4, 5, 5)),
    "sequential": lambda: (
        nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)),
        (1, 1, 3, 3),
    ),
    "norms": lambda: (nn.Sequential(nn.BatchNorm2d(2), nn.GroupNorm(1, 2)), (3, 2, 4, 4)),
    "lstm cell": lambda: (nn.LSTMCell(3, 4), (2, 3)),
    "lstm": lambda: (nn.LSTM(3, 4, 2), (5, 2, 3)),
    "attention": lambda: (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), (3, 2, 4)),
}


def flat(outputs: object) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    assert isinstance(outputs, tuple)
    return [tensor for part in outputs for tensor in flat(part)]


@pytest.mark.parametrize("name", LAYERS)
def test_traced_layers_compute_with_what_they_are_given(name: str) -> None:
    torch.manual_seed(0)
    layer, size = LAYERS[name]()
    layer = layer.eval().to(DEVICE)
    traced = torch.jit.trace(layer, torch.zeros(size, device=DEVICE), check_trace=False)
    x = torch.randn(size, device=DEVICE)
    with torch.no_grad():
        expected, got = flat(layer(x)), flat(traced(x))
        # The traced weights are the layer's: a change of them shows.
        for parameter in layer.parameters():
            parameter.mul_(0.5)
        after, traced_after = flat(layer(x)), flat(traced(x))
    assert all(tensor.device.type == DEVICE.type for tensor in got)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(traced_after, after)
    assert any(not torch.equal(a, b) for a, b in zip(expected, after, strict=True))


def test_a_traced_convolution_has_the_nodes_that_the_cpu_traces() -> None:
    def kinds(device: torch.device) -> list[str]:
        layer = nn.Conv2d(1, 1, 2).to(device)
        graph = torch.jit.trace(layer, torch.zeros(1, 1, 3, 3, device=device)).inlined_graph
        return [node.kind() for node in graph.nodes() if node.kind().startswith("aten::")]

    assert kinds(DEVICE) == kinds(torch.device("cpu")) == ["aten::_convolution"]


def test_ops_without_results_are_traced_in_parts() -> None:
    def scaled(x: Tensor, y: Tensor) -> Tensor:
        parts = [x.clone(), y.clone()]
        torch._foreach_mul_(parts, 3.0)
        torch._foreach_add_(parts, [y, x])
        return parts[0] - parts[1]

    zeros = torch.zeros(3, device=DEVICE)
    traced = torch.jit.trace(scaled, (zeros, zeros))
    x, y = torch.randn(2, 3, device=DEVICE)
    torch.testing.assert_close(traced(x, y), scaled(x, y))


def ranges_of(device: torch.device, body: Callable[[Tensor, Tensor], object]) -> set[str]:
    x, weight = torch.randn(1, 2, 8, 8, device=device), torch.randn(2, 2, 3, 3, device=device)
    body(x, weight)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        body(x, weight)
    return {event.name for event in profiled.events() if event.name.startswith("aten::")}


def test_profiles_show_the_op_and_not_the_engines_ops() -> None:
    assert len(ranges_of(torch.device("cpu"), torch.conv2d)) > 2
    assert ranges_of(DEVICE, torch.conv2d) == {"aten::conv2d", "aten::convolution"}

    def solve(x: Tensor, _: Tensor) -> Tensor:
        return torch.linalg.lstsq(x[0, 0], x[0, 1]).solution

    inner = ranges_of(torch.device("cpu"), solve) - ranges_of(DEVICE, solve)
    assert inner, "the engine's own steps, which the device's op does not take"


def test_profiles_of_all_threads_show_no_op_of_a_worker() -> None:
    x, weight = torch.randn(1, 2, 8, 8, device=DEVICE), torch.randn(2, 2, 3, 3, device=DEVICE)
    stream = torch.Stream(DEVICE)
    with stream:
        torch.conv2d(x, weight)  # now its outputs are known, and the next one is queued
    stream.synchronize()
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=config) as profiled:
        with stream:
            torch.conv2d(x, weight)
        stream.synchronize()
    names = {event.name for event in profiled.events() if event.name.startswith("aten::")}
    assert names == {"aten::conv2d", "aten::convolution"}


KEYS = ["Functionalize", "PreDispatch", "FuncTorchVmapMode"]


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_keys_of_the_thread_see_the_op_alone(warm_python: PythonRunner, key: str) -> None:
    """A mode's key is on for the whole thread: the ops that the engine's kernel calls must not meet it."""
    warm_python(PROGRAMS / "keys_of_the_thread_see_the_op_alone.py", given=key)


def test_no_mode_changes_what_a_queued_op_returns() -> None:
    """Shape functions are Python: a default device must not move what they make."""
    stream = torch.Stream(DEVICE)
    x = torch.randn(4, 6, device=DEVICE)
    with torch.device(DEVICE), stream:
        got = torch.nn.functional.layer_norm(x, (6,)) + torch.linalg.vector_norm(x, dim=0)
    stream.synchronize()
    expected = torch.nn.functional.layer_norm(x.cpu(), (6,)) + torch.linalg.vector_norm(x.cpu(), dim=0)
    torch.testing.assert_close(got.cpu(), expected)

"""Functions that are replayed from a captured graph: which calls it stands for, and which it does not."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_loom.image.replay import Replayer


def scaled(x: torch.Tensor, weight: torch.Tensor, factor: Any) -> list[Any]:
    return [x * weight + factor, None, factor]


def captured(x: torch.Tensor, weight: torch.Tensor, factor: Any = 1) -> Replayer:
    replayer = Replayer(scaled, static=(1,))
    for _ in range(3):
        replayer(x, weight, factor)
    assert (replayer.num_graphs, replayer.refusal) == (1, "")
    return replayer


def test_a_call_with_other_operands_is_another_graph() -> None:
    x, weight = torch.arange(6.0, device="loom"), torch.full((6,), 2.0, device="loom")
    replayer = captured(x, weight)
    for value in (x + 1, x.reshape(2, 3).t().reshape(6), x.clone()):
        result, nothing, factor = replayer(value, weight, 1)
        assert torch.equal(result, value * 2 + 1)
        assert (nothing, factor) == (None, 1)
    weight.fill_(3)  # where it is read
    assert torch.equal(replayer(x, weight, 1)[0], x * 3 + 1)
    for other in ((x, weight.clone(), 1), (x.double(), weight, 1), (x, weight, 2), (x, weight, True)):
        for _ in range(3):
            result, _, factor = replayer(*other)
            assert torch.equal(result, other[0] * 3 + other[2])
            assert type(factor) is type(other[2])
    assert replayer.num_graphs == 5


def test_results_and_operands_belong_to_the_caller() -> None:
    x, weight = torch.ones(4, device="loom", requires_grad=True), torch.ones(4, device="loom")
    replayer = captured(x, weight)
    kept = [replayer(x, weight, 1)[0] for _ in range(3)]
    kept[0].zero_()
    assert kept[1].tolist() == kept[2].tolist() == [2, 2, 2, 2]
    assert x.tolist() == [1, 1, 1, 1]
    turned = torch.tensor([1 + 2j, 3 - 1j], device="loom")
    replayer = captured(turned, torch.ones(2, device="loom"))
    assert replayer(turned.conj(), torch.ones(2, device="loom"), 1)[0].tolist() == [2 - 2j, 4 + 1j]


def test_a_call_on_another_stream_waits_for_the_last() -> None:
    x, weight = torch.ones(1 << 12, device="loom"), torch.ones(1 << 12, device="loom")
    replayer = captured(x, weight)
    results = []
    for number in range(6):
        stream = torch.loom.Stream()
        with torch.loom.stream(stream):
            torch.loom._sleep(200_000)
            results.append(replayer(x + number, weight, 1)[0])
    torch.loom.synchronize()
    assert [result.unique().tolist() for result in results] == [[number + 2] for number in range(6)]


def test_threads_take_turns() -> None:
    x, weight = torch.ones(256, device="loom"), torch.ones(256, device="loom")
    replayer, failures = captured(x, weight), []

    def call(number: int) -> None:
        for _ in range(50):
            if replayer(x * number, weight, 1)[0].unique().tolist() != [number + 1]:
                failures.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_who_listens_to_ops_hears_each() -> None:
    x, weight = torch.ones(4, device="loom"), torch.ones(4, device="loom")
    replayer, heard = captured(x, weight), []

    class Listener(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(op._schema.name)
            return op(*args, **(kwargs or {}))

    with Listener():
        replayer(x, weight, 1)
    assert heard == ["aten::mul", "aten::add"]
    graph = torch.loom.CUDAGraph()
    with torch.loom.graph(graph):
        result = replayer(x, weight, 1)[0]
    x.fill_(4)
    graph.replay()
    assert result.tolist() == [5, 5, 5, 5]


def test_what_is_no_sequence_is_refused() -> None:
    x, weight = torch.ones(4, device="loom"), torch.ones(4, device="loom")
    replayer = captured(x, weight)
    assert replayer._last is not None
    with pytest.raises(TypeError, match="list or a tuple"):
        replayer._last.run(x)  # type: ignore[arg-type]
    assert replayer._last.run([x]) is None
    assert replayer._last.run([1, weight, 1]) is None


def test_results_share_memory_as_they_did() -> None:
    def views(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        y, z = x * weight, x + 1
        parts = [y, y.view(-1), y[:, 1:], y.t(), y.view(torch.int32), torch.view_as_complex(y)]
        return [*parts, y.narrow(0, 0, 0), torch.view_as_complex(y).conj(), z[0], z[1], weight.view(-1)]

    x, weight = torch.arange(6.0, device="loom").reshape(3, 2), torch.full((3, 2), 2.0, device="loom")
    replayer = Replayer(views, static=(1,))
    for call in range(5):
        results, wanted = replayer(x + call, weight), views(x + call, weight)
        kept = replayer(x - call, weight)
        before = [one.tolist() for one in kept]
        for got, want in zip(results, wanted, strict=True):
            assert (got.dtype, got.stride()) == (want.dtype, want.stride())
            assert torch.equal(got, want)
        for results_of in (results, wanted):
            results_of[1][1] = 7  # in what the first six are views of
            results_of[8].zero_()
        for got, want in zip(results[:6], wanted[:6], strict=True):
            assert torch.equal(got, want)
        assert torch.equal(results[9], wanted[9])
        assert [one.tolist() for one in kept] == before  # calls share nothing
    assert (replayer.num_graphs, replayer.refusal) == (1, "")


def test_the_graph_is_of_the_device_of_the_operands() -> None:
    """Whichever device is current: device 0 is, here."""
    weight = torch.full((4,), 2.0, device="loom:1")
    replayer = captured(torch.ones(4, device="loom:1"), weight)
    for value in range(3):
        result = replayer(torch.full((4,), float(value), device="loom:1"), weight, 1)[0]
        assert result.device == weight.device
        assert result.tolist() == [2 * value + 1] * 4


def test_several_devices_are_not_captured() -> None:
    x, y = torch.ones(2, device="loom:0"), torch.ones(2, device="loom:1")
    replayer = Replayer(lambda x, y: [x + 1, y + 2])
    for value in range(4):
        assert [one.tolist() for one in replayer(x * value, y * value)] == [[value + 1] * 2, [value + 2] * 2]
    assert replayer.refusal == "it reads tensors of several devices"
    elsewhere = Replayer(lambda: [torch.rand(8, device="loom:1")])
    first, second, third, fourth = (elsewhere()[0] for _ in range(4))
    assert elsewhere.refusal == "it computes on several devices"
    assert not any(torch.equal(third, other) for other in (first, second, fourth))

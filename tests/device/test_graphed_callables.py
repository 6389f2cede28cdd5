"""`make_graphed_callables`: graphed forward and backward passes are drop-in replacements."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torch_loom.device as loom


class Sections(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2))
        self.second = nn.Sequential(nn.Linear(16, 16), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))  # type: ignore[no-any-return]


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).pow(2).mean()


def test_training_equals_eager_to_the_bit() -> None:
    torch.manual_seed(0)
    eager = Sections().to("loom")
    graphed = copy.deepcopy(eager)
    x = torch.randn(4, 8, device="loom")
    hidden = torch.randn(4, 16, device="loom", requires_grad=True)
    output = torch.randn(4, 16, device="loom", requires_grad=True)
    target = torch.randn(4, 16, device="loom")
    graphed.first, graphed.second, loss = loom.make_graphed_callables(
        (graphed.first, graphed.second, squared_error), ((x,), (hidden,), (output, target))
    )
    data, targets = torch.randn(8, 4, 8), torch.randn(8, 4, 16)
    results: list[list[Tensor]] = []
    for net, measure in ((eager, squared_error), (graphed, loss)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loom.manual_seed(4)
        found = []
        for batch, wanted in zip(data, targets, strict=True):
            optimizer.zero_grad(set_to_none=True)
            value = measure(net(batch.to("loom")), wanted.to("loom"))
            value.backward()
            optimizer.step()
            found.append(value.detach().cpu().clone())
        results.append([*found, *(parameter.detach().cpu() for parameter in net.parameters())])
    for result, other in zip(*results, strict=True):
        assert torch.equal(result, other)


def test_a_module_in_the_other_mode_runs_as_before() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to("loom")
    x = torch.ones(2, 4, device="loom")
    assert loom.make_graphed_callables(net, (x,)) is net
    assert not torch.equal(net(x).clone(), net(x).clone())
    net.eval()
    assert torch.equal(net(x), net(x))
    # A batch of another size has no graph, and needs none in this mode.
    assert net(torch.ones(7, 4, device="loom")).shape == (7, 4)


def test_structures_and_inputs_without_gradients() -> None:
    def function(pair: dict[str, Tensor], other: Tensor) -> dict[str, Tensor]:
        return {"sum": pair["a"] + other, "flag": pair["b"] > 0}

    a = torch.ones(3, device="loom", requires_grad=True)
    b = torch.ones(3, device="loom")
    graphed = loom.make_graphed_callables(function, ({"a": a, "b": b}, b.clone()))
    c = torch.full((3,), 5.0, device="loom", requires_grad=True)
    found = graphed({"a": c, "b": -b}, b * 2)
    assert found["sum"].tolist() == [7.0] * 3
    assert not found["flag"].any()
    found["sum"].sum().backward()
    assert c.grad is not None
    assert c.grad.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="takes 3 tensors, as in its sample_args, got 1"):
        graphed(a)


def test_unused_inputs() -> None:
    def function(used: Tensor, unused: Tensor) -> Tensor:
        return used * 2

    def sample() -> tuple[Tensor, ...]:
        return tuple(torch.ones(2, device="loom", requires_grad=True) for _ in range(2))

    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        loom.make_graphed_callables(function, sample())
    pool = loom.graph_pool_handle()
    graphed = loom.make_graphed_callables(function, sample(), allow_unused_input=True, pool=pool)
    used, unused = sample()
    graphed(used, unused).sum().backward()
    assert unused.grad is None
    assert used.grad is not None
    assert used.grad.tolist() == [2.0, 2.0]


def test_without_warm_up() -> None:
    net = nn.Linear(3, 3).to("loom")
    twin = copy.deepcopy(net)
    x = torch.randn(5, 3, device="loom")
    loom.make_graphed_callables(net, (x.clone(),), num_warmup_iters=0)
    for module in (net, twin):
        module(x).sum().backward()
    assert net.weight.grad is not None
    assert twin.weight.grad is not None
    assert torch.equal(net.weight.grad, twin.weight.grad)


def hooked() -> nn.Module:
    net = nn.Linear(2, 2).to("loom")
    net.register_forward_hook(lambda *_: None)
    return net


def with_trainable_buffer() -> nn.Module:
    net = nn.Linear(2, 2).to("loom")
    net.register_buffer("scale", torch.ones(2, device="loom", requires_grad=True))
    return net


@pytest.mark.parametrize(
    ("callables", "sample", "error", "message"),
    [
        (hooked, ("x",), ValueError, "hooks registered"),
        (with_trainable_buffer, ("x",), ValueError, "requires_grad=True: scale"),
        (lambda: abs, (3,), TypeError, r"must contain only Tensors, but there is 3 \(int\)"),
        (lambda: (abs, abs), (("x",),), ValueError, "2 callables need as many"),
    ],
)
def test_what_cannot_be_graphed(callables: Any, sample: Any, error: type[Exception], message: str) -> None:
    x = torch.ones(2, 2, device="loom")
    args = tuple(x if value == "x" else (x,) if value == ("x",) else value for value in sample)
    with pytest.raises(error, match=message):
        loom.make_graphed_callables(callables(), args)


def test_autocast_only_without_its_cache() -> None:
    net = nn.Linear(4, 4).to("loom")
    x = torch.ones(2, 4, device="loom")
    with (
        torch.autocast("loom", dtype=torch.bfloat16),
        pytest.raises(RuntimeError, match="does not support the autocast caching"),
    ):
        loom.make_graphed_callables(net, (x,))
    with torch.autocast("loom", dtype=torch.bfloat16, cache_enabled=False):
        loom.make_graphed_callables(net, (x,))
        assert net(x).dtype == torch.bfloat16

"""Graphs: whole training steps give the bits of eager ones."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from captured_graph import captured
from torch import Tensor, nn
from torch.nn import functional

import torch_loom.device as loom


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 4))


Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


@pytest.mark.parametrize(
    "make",
    [
        lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
        lambda net: torch.optim.Adam(net.parameters(), lr=0.01, capturable=True, foreach=True),
        lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, capturable=True, foreach=False),
    ],
)
def test_a_training_step_equals_eager_to_the_bit(make: Optimizer) -> None:
    torch.manual_seed(0)
    nets = [Net().to("loom")]
    nets.append(copy.deepcopy(nets[0]))
    data = torch.randn(12, 6, 8)
    labels = torch.randint(0, 4, (12, 6))
    results = []
    for net, is_graphed in zip(nets, (False, True), strict=True):
        optimizer = make(net)
        x, y = data[0].to("loom"), labels[0].to("loom")
        losses: list[Tensor] = []

        def step(net: nn.Module = net, x: Tensor = x, y: Tensor = y, optimizer: object = optimizer) -> Tensor:
            optimizer.zero_grad(set_to_none=True)  # type: ignore[attr-defined]
            loss = functional.cross_entropy(net(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()  # type: ignore[attr-defined]
            return loss

        loom.manual_seed(9)
        stream = loom.Stream()
        stream.wait_stream(loom.current_stream())
        with loom.stream(stream):
            for _ in range(2):
                step()
        loom.current_stream().wait_stream(stream)
        graph = loom.LoomGraph()
        if is_graphed:
            with loom.graph(graph):
                loss = step()
        for batch, label in zip(data, labels, strict=True):
            x.copy_(batch)
            y.copy_(label)
            if is_graphed:
                graph.replay()
            else:
                loss = step()
            losses.append(loss.detach().cpu().clone())
        results.append([*losses, *(parameter.detach().cpu() for parameter in net.parameters())])
    for eager, replayed in zip(*results, strict=True):
        assert torch.equal(eager, replayed)


def test_autocast_and_grad_scaler() -> None:
    torch.manual_seed(0)
    net = nn.Linear(8, 4).to("loom")
    twin = copy.deepcopy(net)
    x = torch.randn(5, 8, device="loom")
    finals = []
    for module, is_graphed in ((net, False), (twin, True)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("loom", init_scale=8.0)

        def forward(module: nn.Module = module) -> Tensor:
            with torch.autocast("loom", dtype=torch.bfloat16, cache_enabled=False):
                return module(x).float().pow(2).mean()

        def passes(scaler: torch.amp.GradScaler = scaler, run: Callable[[], Tensor] = forward) -> None:
            scaler.scale(run()).backward()  # type: ignore[no-untyped-call]

        with loom.stream(loom.Stream()):
            passes()
        loom.synchronize()
        optimizer.zero_grad(set_to_none=True)
        graph = captured(passes) if is_graphed else None
        for _ in range(4):
            if graph is None:
                optimizer.zero_grad(set_to_none=True)
                passes()
            else:
                graph.replay()
            scaler.step(optimizer)
            scaler.update()
        finals.append([parameter.detach().cpu() for parameter in module.parameters()])
    for final, other in zip(*finals, strict=True):
        assert torch.equal(final, other)

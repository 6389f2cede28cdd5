"""torch.nn.DataParallel and the functions under it, on two devices."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import parallel


class Net(nn.Module):
    """A batch norm, a buffer, a dict in and out, a complex parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 2)
        self.turn = nn.Parameter(torch.ones(2, dtype=torch.complex64))
        self.register_buffer("shift", torch.full((2,), 0.5))

    def forward(self, batch: dict[str, torch.Tensor], scale: float = 1.0) -> dict[str, torch.Tensor]:
        hidden = torch.relu(self.norm(self.first(batch["x"])))
        y = (self.second(hidden) * self.turn).real + self.shift
        return {"y": y * scale, "sum": y.sum()}


def trained(net: nn.Module, module: nn.Module, num_steps: int = 3) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(num_steps):
        x = torch.randn(8, 4, generator=generator)
        out = module({"x": x.to("loom")}, scale=2.0)
        loss = (out["y"] ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_equals_that_on_one_device() -> None:
    torch.manual_seed(0)
    alone = Net().to("loom")
    alone.norm.eval()  # each replica would see the statistics of its half
    shared = copy.deepcopy(alone)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*NCCL.*")
        warnings.filterwarnings("ignore", message="Was asked to gather")
        module = nn.DataParallel(shared).to("loom")
        assert module.device_ids == [0, 1]
        assert trained(shared, module) == pytest.approx(trained(alone, alone), rel=1e-5)
    for (name, one), two in zip(alone.named_parameters(), shared.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, msg=name)


def test_batch_statistics_are_those_of_the_first_replica() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm1d(3)).to("loom")
    x = torch.randn(8, 3)
    nn.DataParallel(net)(x).sum().backward()
    torch.testing.assert_close(net[0].running_mean.cpu(), 0.1 * x[:4].mean(0))
    assert net[0].num_batches_tracked.item() == 1


def test_functions() -> None:
    net = nn.Linear(4, 2).to("loom:0")
    x = torch.randn(6, 4, device="loom:0")
    expected = net(x)
    torch.testing.assert_close(parallel.data_parallel(net, x, [0, 1]), expected)
    replicas = parallel.replicate(net, ["loom:0", torch.device("loom:1")])
    inputs = parallel.scatter({"x": x, "n": 3}, [0, 1])
    assert [part["x"].get_device() for part in inputs] == [0, 1]
    assert [part["n"] for part in inputs] == [3, 3]
    devices = [torch.device("loom:0"), torch.device("loom:1")]
    outputs = parallel.parallel_apply(replicas, [part["x"] for part in inputs], devices=devices)
    torch.testing.assert_close(parallel.gather(outputs, "cpu"), expected.cpu())
    parts = parallel.scatter(x.clone().requires_grad_(), [0, 1])
    parallel.gather([part * (i + 1) for i, part in enumerate(parts)], 1).sum().backward()


def test_errors_of_a_replica_reach_the_caller() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.get_device() == 1:
                raise KeyError("the second replica")
            return x

    with pytest.raises(KeyError, match="replica 1 on device 1"):
        nn.DataParallel(Fails())(torch.ones(4, 2))
    with pytest.raises(RuntimeError, match="loom:0"):
        nn.DataParallel(nn.Linear(2, 2))(torch.ones(4, 2))


def test_channels_last_is_kept() -> None:
    seen: list[tuple[bool, bool]] = []

    class Conv(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(
                (
                    x.is_contiguous(memory_format=torch.channels_last),
                    self.weight.is_contiguous(memory_format=torch.channels_last),
                )
            )
            return super().forward(x)

    net = Conv(3, 2, 3).to("loom", memory_format=torch.channels_last)
    images = torch.randn(4, 3, 8, 8).to("loom", memory_format=torch.channels_last)
    result = nn.DataParallel(net)(images)
    assert seen == [(True, True)] * 2
    assert result.is_contiguous(memory_format=torch.channels_last)

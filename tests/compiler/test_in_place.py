"""Modules that write to tensors in place: one trace where nothing else reads them, and eager's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import torch_loom
from torch_loom.torch_version import minor_of


class _Net(nn.Module):
    def __init__(self, run: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.run = nn.Linear(6, 6), run

    def forward(self, x: Tensor) -> Any:
        return self.run(self.linear(x), x)


def _read_before(h: Tensor, x: Tensor) -> Any:
    flat = h.view(-1)
    h += 1
    return flat, h


def _dropped(h: Tensor, x: Tensor) -> Any:
    other = functional.dropout(h, 0.5, training=False)
    other += 1
    return h, other


def _twice(h: Tensor, x: Tensor) -> Any:
    h += x
    h.mul_(2)
    return h.relu_()


def _integers(h: Tensor, x: Tensor) -> Any:
    return (h * 0).add_(torch.ones(6, dtype=torch.int64, device=h.device))


def _check(run: Callable[[Tensor, Tensor], Any]) -> None:
    torch.manual_seed(0)
    net, x = _Net(run).to("loom").eval(), torch.randn(4, 6, device="loom")
    with torch.no_grad():
        torch.testing.assert_close(torch_loom.compile(net, (x,), cache=False)(x), net(x), rtol=0, atol=0)


@pytest.mark.long
@pytest.mark.parametrize("run", [_read_before, _dropped, _twice, _integers])
def test_values_are_eagers(run: Callable[[Tensor, Tensor], Any]) -> None:
    _check(run)


def test_one_trace_is_enough_where_nothing_else_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise AssertionError("traced again")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", fails)
    _check(_twice)
    if minor_of(torch.__version__) >= (2, 14):
        _check(_dropped)  # whose export is right there
        return
    with pytest.raises(AssertionError, match="traced again"):
        _check(_dropped)


@pytest.mark.long
def test_statistics_are_updated_without_a_module() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(6))
            self.register_buffer("variance", torch.ones(6))

        def forward(self, x: Tensor) -> Tensor:
            return functional.batch_norm(x, self.mean, self.variance, training=True)

    torch.manual_seed(0)
    net, own, x = Norm().to("loom"), Norm().to("loom"), torch.randn(4, 6, device="loom")
    assert torch.equal(torch_loom.compile(net, (x,), cache=False)(x), own(x))
    assert torch.equal(net.mean, own.mean)
    assert torch.equal(net.variance, own.variance)

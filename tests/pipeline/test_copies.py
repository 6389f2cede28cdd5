"""Copies of modules on a device: as ``copy.deepcopy`` makes them, filled while the program goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torch_loom.pipeline import Stage

LARGE = 256  # a matrix of so many rows and columns is copied in the thread


class _Parts(nn.Module):
    """Attributes of all kinds, some of them of two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(LARGE, LARGE), nn.Linear(LARGE, LARGE, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(LARGE)
        self.register_buffer("scale", torch.full((LARGE, LARGE), 0.5))
        self.norm.register_buffer("tied", self.scale)
        self.sizes, self.name, self.empty = [1, (2, 3), {"a": [4]}], "parts", {}
        self.norm.sizes = self.sizes
        self.hidden = (self.first, {"second": self.second})
        self.calls: list[Any] = []
        self.second.register_forward_hook(_Noting(self.calls))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.second(self.first(x)) @ self.scale)


class _Noting:
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.calls.append(module)


class _Stated(nn.Linear):
    """Says itself what its copies have."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "made": {"of": [1]}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "total": state["_parameters"]["weight"].sum().item()})


class _Copying(nn.Linear):
    def __deepcopy__(self, memo: dict[int, Any]) -> _Copying:
        made = _Copying(self.in_features, self.out_features)
        made.load_state_dict(self.state_dict())
        return made


def _copied(module: nn.Module, fills_later: bool = False) -> Stage:
    return Stage("only", module.eval(), "loom:0", keep_modules=False, fills_later=fills_later)


@pytest.mark.parametrize("fills_later", [False, True])
def test_a_copy_has_all_that_the_module_has_and_shares_what_it_shares(fills_later: bool) -> None:
    module = _Parts()
    stage = _copied(module, fills_later)
    stage.finish_copies()
    made: Any = stage.modules["only"]
    assert made.second.weight is made.first.weight
    assert made.first.weight.device.type == "loom"
    assert made.norm.sizes is made.sizes == module.sizes
    assert made.sizes is not module.sizes
    assert made.sizes[2] is not module.sizes[2]
    assert made.empty is not module.empty
    assert made.hidden[0] is made.first
    assert made.hidden[1]["second"] is made.second
    assert {**made.__dict__}.keys() == module.__dict__.keys()
    for name, value in module.state_dict().items():
        assert made.state_dict()[name].cpu().equal(value), name
    x = torch.rand(4, LARGE)
    torch.testing.assert_close(made(x.to("loom:0")).cpu(), module(x))
    assert made.calls == [made.second]
    assert module.calls == [module.second]


@pytest.mark.parametrize("kind", [_Stated, _Copying])
def test_modules_that_copy_themselves_in_their_own_way(kind: type[nn.Linear]) -> None:
    module = kind(LARGE, LARGE)
    stage = _copied(nn.Sequential(module), fills_later=True)
    made: Any = stage.modules["only"][0]
    if kind is _Stated:
        assert made.made == {"of": [1]}
        assert made.total == pytest.approx(module.weight.sum().item(), rel=1e-3, abs=1e-3)
    stage.finish_copies()
    assert made.weight.cpu().equal(module.weight)


def test_an_error_of_the_thread_is_raised_where_values_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*lists: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(torch, "_foreach_copy_", fail)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        _copied(nn.Linear(LARGE, LARGE))
    stage = _copied(nn.Linear(LARGE, LARGE), fills_later=True)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError, match="no room"):
            stage.finish_copies()


def test_values_of_inference_mode_are_copied() -> None:
    with torch.inference_mode():
        stage = _copied(nn.Linear(LARGE, LARGE).requires_grad_(False), fills_later=True)
        stage.finish_copies()

"""set_sync_debug_mode: what makes the host wait is told or refused, what does not is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import torch_loom.device as loom
from torch_loom.errors import ImplicitSynchronizationError

Use = Callable[[Tensor], object]

WAITS: dict[str, Use] = {
    "item": lambda x: x[0].item(),
    "bool": lambda x: bool(x[0]),
    "tolist": lambda x: x.tolist(),
    "print": lambda x: str(x),
    "to the host": lambda x: x.cpu(),
    "to pinned memory": lambda x: torch.empty(4, pin_memory=True).copy_(x),
    "from the host": lambda x: torch.ones(4).to(x.device),
    "new tensor": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "write by mask": lambda x: x.__setitem__(x > 1, x[:2].clone()),
    "indices of the host": lambda x: x[torch.tensor([1, 2])],
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "a histogram of all": lambda x: x.histc(4),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, x.long()),
}
PASSES: dict[str, Use] = {
    "arithmetic": lambda x: (x * 2 + 1).sum(),
    "indices": lambda x: x[(x * 0).long()],
    "a value by mask": lambda x: x.__setitem__(x > 1, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
    "a histogram of a range": lambda x: x.histc(4, 0, 2),
    "a histogram of nothing": lambda x: x[:0].histc(4),
    "any": lambda x: (x > 1).any(),
    "repeat_interleave of known size": lambda x: torch.repeat_interleave(x, x.long(), output_size=6),
    "not blocking": lambda x: torch.ones(4).pin_memory().to(x.device, non_blocking=True),
    "between devices": lambda x: x.to("loom:1"),
    "synchronize": lambda _: loom.synchronize(),
    "stream": lambda _: loom.current_stream().synchronize(),
    "event": lambda _: loom.current_stream().record_event().synchronize(),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    loom.set_sync_debug_mode("default")


@pytest.fixture
def values() -> Tensor:
    return torch.tensor([0.0, 1.0, 2.0, 3.0]).to("loom")


@pytest.mark.exercises("torch.cuda.set_sync_debug_mode")
@pytest.mark.parametrize("use", WAITS.values(), ids=WAITS)
def test_what_waits_is_refused_or_warned_of(use: Use, values: Tensor) -> None:
    loom.set_sync_debug_mode("error")
    with pytest.raises(
        ImplicitSynchronizationError, match="called a synchronizing LOOM operation: aten::"
    ) as e:
        use(values)
    assert "test_sync_debug.py:" in str(e.value)
    assert isinstance(e.value, RuntimeError)
    loom.set_sync_debug_mode("warn")
    with pytest.warns(
        UserWarning, match=r"called a synchronizing LOOM operation: aten::.*test_sync_debug.py:"
    ):
        use(values)


@pytest.mark.parametrize("use", PASSES.values(), ids=PASSES)
def test_what_does_not_wait_passes(use: Use, values: Tensor) -> None:
    loom.set_sync_debug_mode("error")
    use(values)


@pytest.mark.exercises("torch.cuda.set_sync_debug_mode", "torch.cuda.get_sync_debug_mode")
def test_modes_by_name_and_number() -> None:
    assert loom.get_sync_debug_mode() == 0
    for number, name in enumerate(("default", "warn", "error")):
        loom.set_sync_debug_mode(name)
        assert loom.get_sync_debug_mode() == number
        loom.set_sync_debug_mode(0)
        loom.set_sync_debug_mode(number)
        assert loom.get_sync_debug_mode() == number
    for bad in ("loud", "", 3, -1):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            loom.set_sync_debug_mode(bad)
    for worse in (None, 1.0, True):
        with pytest.raises(TypeError, match="debug_mode must be a str or an int"):
            loom.set_sync_debug_mode(worse)  # type: ignore[arg-type]
    assert loom.get_sync_debug_mode() == 2


def test_a_refused_op_changes_nothing(values: Tensor) -> None:
    host = torch.zeros(4)
    loom.set_sync_debug_mode("error")
    with pytest.raises(ImplicitSynchronizationError):
        host.copy_(values)
    with pytest.raises(ImplicitSynchronizationError):
        values[values > 1] = values[:2]
    loom.set_sync_debug_mode("default")
    assert host.tolist() == [0, 0, 0, 0]
    assert values.tolist() == [0, 1, 2, 3]


def test_in_backward(values: Tensor) -> None:
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(_ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
            return grad * grad.sum().item()

    loss = Reads.apply(values.requires_grad_()).sum()
    loom.set_sync_debug_mode("error")
    with pytest.raises(ImplicitSynchronizationError):
        loss.backward()

"""What torch_loom.compile says of models that fail, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import torch_loom
from torch_loom.errors import CompilerOptionError

pytestmark = pytest.mark.usefixtures("plain_configuration")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # this line


def compiled(net: nn.Module, x: torch.Tensor, is_training: bool) -> torch_loom.Executable:
    return trained(net, x, torch.optim.SGD) if is_training else torch_loom.compile(net, (x,))


def trained(net: nn.Module, x: torch.Tensor, kind: Any) -> torch_loom.Executable:
    optimizer, target = kind(net.parameters(), lr=0.1), torch.zeros(2, 4)
    return torch_loom.compile(net, (x, target), optimizer=optimizer, loss=functional.mse_loss)


@pytest.mark.parametrize("is_training", [False, True])
def test_a_wrong_shape_names_the_line(is_training: bool, capfd: pytest.CaptureFixture[str]) -> None:
    net, x = Net(), torch.randn(2, 5)
    with pytest.raises(RuntimeError, match=r"\[2, 5\][^$]*test_failures.py:\d+, in forward, `.*# this line`"):
        compiled(net, x, is_training)
    assert "fake_tensor" not in capfd.readouterr().err


def test_the_models_own_error_keeps_its_class() -> None:
    class Refuses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"too long: {x.shape[0]}")

    with pytest.raises(ValueError, match=r"too long: 2\nin the model: .*test_failures.py"):
        torch_loom.compile(Refuses(), (torch.ones(2),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
@pytest.mark.parametrize("is_training", [False, True])
def test_a_dtype_that_eager_refuses_is_refused(dtype: torch.dtype, is_training: bool) -> None:
    net, x = Net().to("loom"), torch.ones(2, 8, dtype=dtype)
    with pytest.raises(RuntimeError, match="same dtype") as eager:
        net(x.to("loom"))
    with pytest.raises(RuntimeError, match="same dtype") as ours:
        compiled(net, x, is_training)
    assert str(ours.value).startswith(str(eager.value).partition("\n")[0])
    assert "test_failures.py:" in str(ours.value)


def test_dtypes_that_eager_takes_together_are_compiled() -> None:
    class Masked(nn.Module):
        def forward(self, q: torch.Tensor, mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(q, q, q, mask) + ids

    q, mask = torch.randn(1, 2, 4, 8), torch.ones(4, 4, dtype=torch.bool).tril()
    ids = torch.arange(8)
    ours = torch_loom.compile(Masked(), (q, mask, ids))(q, mask, ids)
    assert torch.equal(ours, Masked()(q.to("loom"), mask.to("loom"), ids.to("loom")))


def test_an_optimizer_with_a_closure_is_refused() -> None:
    with pytest.raises(CompilerOptionError, match=r"LBFGS computes the loss several times.*closure"):
        trained(Net(), torch.ones(2, 8), torch.optim.LBFGS)


def test_a_plan_without_ops_on_the_chip_says_why() -> None:
    run = torch_loom.compile(Net(), (torch.ones(2, 8),), chip="atom")
    assert "none runs on the chip" in repr(run)
    assert "float32, which is not among the dtypes of atom" in repr(run)


def test_names_are_there_before_they_are_imported() -> None:
    modules = {"numerics", "compiler", "pipeline", "pybuda", "chips"}
    assert {"compile", "Executable", *modules} <= {*dir(torch_loom)}
    assert {"compile_module", "load_onnx", "set_configuration_options"} <= {*dir(torch_loom.compiler)}
    for name in modules:
        assert getattr(torch_loom, name).__name__ == f"torch_loom.{name}"

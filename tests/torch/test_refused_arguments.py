"""Arguments that a kernel refuses are refused at the call, whatever the stream has queued.

Shape functions look at shapes and dtypes only, and a call with accepted arguments comes first: what is known
of that one must not let the other pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_loom.device as loom

Call = Callable[[Tensor], object]


def positions(x: Tensor, *indices: int) -> Tensor:
    return torch.tensor(indices, device=x.device)


# What is accepted, what is refused, and its error.
REFUSED: dict[str, tuple[Call, Call, str]] = {
    "uniform_": (lambda x: x.uniform_(1, 2), lambda x: x.uniform_(2, 1), "uniform_ expects"),
    "random_": (lambda x: x.random_(2, 5), lambda x: x.random_(5, 2), "random_ expects"),
    "bernoulli_": (lambda x: x.bernoulli_(0.5), lambda x: x.bernoulli_(2.0), "bernoulli_ expects p"),
    "bernoulli_ that overlaps": (
        lambda x: x.bernoulli_(torch.rand_like(x)),
        lambda x: x[0, :1].expand(4).bernoulli_(torch.rand(4, device=x.device)),
        "single memory location",
    ),
    "cauchy_": (lambda x: x.cauchy_(0, 1), lambda x: x.cauchy_(0, 0), "cauchy_ expects sigma"),
    "exponential_": (lambda x: x.exponential_(1), lambda x: x.exponential_(-1), "exponential_ expects"),
    "geometric_": (lambda x: x.geometric_(0.5), lambda x: x.geometric_(2), "geometric_ expects p"),
    "log_normal_": (lambda x: x.log_normal_(0, 1), lambda x: x.log_normal_(0, -1), "log_normal_ expects std"),
    "multinomial": (lambda x: x.multinomial(2), lambda x: x.multinomial(9), "cannot sample n_sample"),
    "fill_": (lambda x: x.fill_(1.5), lambda x: x.fill_(1.5 + 1j), "without overflow"),
    "index_fill_": (
        lambda x: x.index_fill_(1, positions(x, 0), 1.5),
        lambda x: x.index_fill_(1, positions(x, 0), 1.5 + 1j),
        "Converting complex Scalar",
    ),
    "gelu": (
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        lambda x: torch.nn.functional.gelu(x, approximate="cosh"),
        "approximate argument",
    ),
    "a dtype": (
        lambda x: torch.nn.functional.interpolate(x[None], scale_factor=2),
        lambda x: torch.nn.functional.interpolate(x[None].long(), scale_factor=2),
        "not implemented for 'Long'",
    ),
    "values of indices": (
        lambda x: x.index_put_((positions(x, 0, 1),), torch.ones(4, device=x.device)),
        lambda x: x.index_put_((positions(x, 0, 1),), torch.ones(5, device=x.device)),
        "shape mismatch: value tensor",
    ),
    "values of a mask": (
        lambda x: x.index_put_((x > 9,), torch.ones(0, device=x.device)),
        lambda x: x.index_put_((x > 9,), torch.ones(7, device=x.device)),
        "shape mismatch: value tensor",
    ),
    "shape of a mask": (
        lambda x: x.index_put_((x > 9,), torch.tensor(1.0, device=x.device)),
        lambda x: x.index_put_((torch.ones(9, 9, device=x.device) > 0,), torch.tensor(1.0, device=x.device)),
        "The shape of the mask",
    ),
    "dtypes of a product": (lambda x: x @ x.T, lambda x: x @ x.T.half(), "to have the same dtype"),
    "dtypes of products of batches": (
        lambda x: torch.bmm(x[None], x.T[None]),
        lambda x: torch.bmm(x[None].int(), x.T[None].half()),
        "expected scalar type Int but found Half",
    ),
    "addend of a product": (
        lambda x: torch.nn.functional.linear(x, x, x[:, 0]),
        lambda x: torch.nn.functional.linear(x, x, x.flatten()),
        "must match the existing size",
    ),
    "factor of a product": (
        lambda x: torch.addmm(x[0, :3], x, x.T, alpha=2),
        lambda x: torch.addmm(x[0, :3], x, x.T, alpha=2j),
        "without overflow",
    ),
    "factor of an addend in half precision": (
        lambda x: torch.addmm(x[0, :3].half(), x.half(), x.T.half(), beta=2),
        lambda x: torch.addmm(x[0, :3].half(), x.half(), x.T.half(), beta=2j),
        "without overflow",
    ),
    "dtypes of operands": (
        lambda x: torch.linalg.cross(x[:, :3], x[:, :3]),
        lambda x: torch.linalg.cross(x[:, :3], x[:, :3].half()),
        "expected scalar type",
    ),
    "dtype of a reduction": (lambda x: x.std(), lambda x: x.int().std(), "only support floating point"),
    "out that overlaps": (
        lambda x: torch.take(x, positions(x, 0, 1), out=torch.empty(2, device=x.device)),
        lambda x: torch.take(x, positions(x, 0, 1), out=torch.empty(1, device=x.device).expand(2)),
        "single memory location",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_at_the_call(name: str) -> None:
    accepted, refused, message = REFUSED[name]
    x = torch.ones(3, 4, device="loom")
    with loom.stream(loom.Stream()):
        accepted(x)
        with pytest.raises((RuntimeError, IndexError), match=message) as caught:
            refused(x)
    loom.synchronize()
    assert "queued" not in str(caught.value)


def test_accepted_calls_are_captured_without_a_warm_up() -> None:
    x = torch.ones(3, 5, device="loom")
    index = positions(x, 0, 2)
    graph = loom.Graph() if hasattr(loom, "Graph") else loom.CUDAGraph()
    with loom.graph(graph):
        x.uniform_(3, 4)
        x.index_put_((index,), torch.zeros(2, 5, device="loom"))
        drawn = torch.multinomial(x + 1, 2)
    x.fill_(9)
    graph.replay()
    assert x[0].eq(0).all()
    assert x[2].eq(0).all()
    assert ((x[1] >= 3) & (x[1] <= 4)).all()
    assert drawn.shape == (3, 2)


@pytest.mark.parametrize("shape", [(7, 3, 1, 1), (4, 3, 2, 2)])
def test_gradients_that_nobody_wants_are_none(shape: tuple[int, ...]) -> None:
    """The input of a first layer needs none; the shape function of batch norm's gradient returns one."""
    torch.manual_seed(0)
    x, weight = torch.randn(shape), torch.rand(3)
    found = []
    for device in ("cpu", "loom"):
        side = loom.Stream()
        with loom.stream(side):
            own = weight.to(device, copy=True).requires_grad_()
            bias = torch.zeros(3, device=device, requires_grad=True)
            out = torch.nn.functional.batch_norm(x.to(device), None, None, own, bias, training=True)
            out.pow(2).sum().backward()
            side.synchronize()
            assert own.grad is not None
            assert bias.grad is not None
            found.append((own.grad.cpu(), bias.grad.cpu()))
    torch.testing.assert_close(found[0], found[1])


def test_an_infinite_rate_leaves_zeros() -> None:
    assert torch.ones(4, dtype=torch.float16, device="loom").exponential_(float("inf")).eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("norm", [torch.nn.LayerNorm(6), torch.nn.GroupNorm(2, 6)])
def test_statistics_of_half_precision(norm: torch.nn.Module, is_mixed: bool, dtype: torch.dtype) -> None:
    """Whether the engine keeps them in the operand's dtype or in float32 depends on the weights'."""
    x = torch.randn(2, 6) if isinstance(norm, torch.nn.GroupNorm) else torch.randn(2, 4, 6)
    found = []
    for device in ("cpu", "loom"):
        own = copy.deepcopy(norm).to(device, torch.float32 if is_mixed else dtype)
        there = x.to(device, dtype).requires_grad_()
        with loom.stream(loom.Stream()):
            result = own(there)
            result.backward(torch.ones_like(result) / 3)
        loom.synchronize()
        assert there.grad is not None
        found.append((result.detach().cpu(), there.grad.cpu()))
    torch.testing.assert_close(found[1], found[0])

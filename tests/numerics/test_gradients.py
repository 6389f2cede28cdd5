"""Gradients: straight through conversions, of products by their own positions, in a format."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.numerics.inputs import random
from torch_loom import numerics
from torch_loom.numerics import DataFormat, MathFidelity

ops = torch.ops.loom_numerics
B8 = DataFormat.Bfp8_b


def test_gradients_go_straight_through() -> None:
    x = random(3, 20).requires_grad_()
    weights = random(3, 20, seed=4)
    (numerics.quantize(x, DataFormat.Bfp2_b) * weights).sum().backward()
    assert torch.equal(x.grad, weights)  # type: ignore[arg-type]


def test_gradients_in_a_format() -> None:
    x = random(3, 20).requires_grad_()
    weights = random(3, 20, seed=4)
    (ops.quantize(x, B8.value, 255, DataFormat.Bfp4_b.value) * weights).sum().backward()
    assert torch.equal(x.grad, numerics.quantize(weights, DataFormat.Bfp4_b))  # type: ignore[arg-type]


@pytest.mark.parametrize("shapes", [((5, 20), (20, 4)), ((20,), (20, 4)), ((5, 20), (20,)), ((20,), (20,)),
                                    ((2, 5, 20), (20, 4)), ((2, 5, 20), (2, 20, 4)), ((3, 1, 5, 20), (2, 20,
                                    4)), ((5, 20), (2, 20, 4))], ids=str)  # fmt: skip
@pytest.mark.parametrize("mode", ["fast", "silicon"])
def test_gradients_of_matmul_are_products_by_their_own_positions(mode: str, shapes: Any) -> None:
    how: dict[str, Any] = {"fidelity": MathFidelity.HiFi2, "accumulate": DataFormat.Float16_b, "mode": mode}
    a, b = random(*shapes[0]).requires_grad_(), random(*shapes[1], seed=4).requires_grad_()
    result = numerics.matmul(a, b, **how)
    grad = random(*result.shape, seed=5)
    grad_a, grad_b = torch.autograd.grad(result, (a, b), grad)
    left, right = (a.unsqueeze(0) if a.dim() == 1 else a), (b.unsqueeze(1) if b.dim() == 1 else b)
    grad = grad.reshape(
        *grad.shape[: grad.dim() - (a.dim() > 1) - (b.dim() > 1)], left.shape[-2], right.shape[-1]
    )
    wanted_a = numerics.matmul(grad, right.mT, **how).sum_to_size(left.shape).reshape(a.shape)
    assert torch.equal(grad_a, wanted_a)
    if right.dim() == 2:
        # One product over all rows, rounded once.
        wanted_b = numerics.matmul(left.reshape(-1, 20).mT, grad.reshape(-1, right.shape[-1]), **how)
    else:
        wanted_b = numerics.matmul(left.mT, grad, **how).sum_to_size(right.shape)
    assert torch.equal(grad_b, wanted_b.reshape(b.shape))


def test_gradients_of_conv2d_and_linear_agree_with_float32_within_the_fidelity() -> None:
    x, weight, bias = (
        random(2, 4, 6, 6).requires_grad_(),
        random(6, 2, 3, 3).requires_grad_(),
        random(6).requires_grad_(),
    )
    result = numerics.conv2d(x, weight, bias, 2, 1, groups=2)
    wanted = torch.nn.functional.conv2d(x, weight, bias, 2, 1, groups=2)
    torch.testing.assert_close(result, wanted, rtol=2**-8, atol=2**-7)
    grad = random(*result.shape, seed=5)
    for got, exact in zip(
        torch.autograd.grad(result, (x, weight, bias), grad),
        torch.autograd.grad(wanted, (x, weight, bias), grad),
        strict=True,
    ):
        torch.testing.assert_close(got, exact, rtol=2**-8, atol=2**-6)
    layer = torch.nn.Linear(20, 5)
    x = random(2, 3, 20).requires_grad_()
    got = ops.linear(x, layer.weight, layer.bias, MathFidelity.HiFi4.value, DataFormat.Float32.value)
    grad = random(2, 3, 5)
    for mine, exact in zip(
        torch.autograd.grad(got, (x, *layer.parameters()), grad),
        torch.autograd.grad(layer(x), (x, *layer.parameters()), grad),
        strict=True,
    ):
        torch.testing.assert_close(mine, exact, rtol=2**-8, atol=2**-7)


def test_second_derivatives() -> None:
    a, b = random(3, 4).requires_grad_(), random(4, 3, seed=4).requires_grad_()
    (grad,) = torch.autograd.grad(numerics.matmul(a, b).square().sum(), a, create_graph=True)
    assert torch.autograd.grad(grad.sum(), b)[0].abs().sum() > 0


def test_forward_mode_is_refused() -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(random(2, 2), random(2, 2))
        with pytest.raises(NotImplementedError, match="forward-mode"):
            numerics.quantize(dual, B8)

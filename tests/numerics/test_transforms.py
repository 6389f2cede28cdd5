"""Under vmap, torch.func and torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.numerics.inputs import random
from torch_loom import numerics
from torch_loom.numerics import DataFormat, MathFidelity

B8 = DataFormat.Bfp8_b


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_vmap_of_conversions(dim: int) -> None:
    x = random(4, 5, 18)
    for fmt in (B8, DataFormat.Float16):
        got = torch.vmap(lambda t, fmt=fmt: numerics.quantize(t, fmt), in_dims=dim, out_dims=dim)(x)
        wanted = torch.stack([numerics.quantize(t, fmt) for t in x.unbind(dim)], dim)
        assert torch.equal(got, wanted)
    scalars = torch.vmap(lambda t: numerics.quantize(t, B8))(random(40))
    assert torch.equal(scalars, torch.stack([numerics.quantize(t, B8) for t in random(40)]))
    packed = torch.vmap(lambda t: numerics.pack(t, B8), in_dims=dim)(x)
    assert torch.equal(packed, torch.stack([numerics.pack(t, B8) for t in x.unbind(dim)]))


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0), (2, 1)], ids=str)
@pytest.mark.parametrize(
    "shapes", [((5, 20), (20, 4)), ((20,), (20, 4)), ((5, 20), (20,)), ((2, 5, 20), (20, 4))], ids=str
)
def test_vmap_of_matmul(shapes: Any, dims: Any) -> None:
    inputs = [
        random(*shape) if dim is None else random(3, *shape).movedim(0, min(dim, len(shape)))
        for shape, dim in zip(shapes, dims, strict=True)
    ]
    in_dims = tuple(
        None if dim is None else min(dim, len(shape)) for shape, dim in zip(shapes, dims, strict=True)
    )
    how: dict[str, Any] = {
        "fidelity": MathFidelity.HiFi2,
        "accumulate": DataFormat.Float16_b,
        "mode": "silicon",
    }
    got = torch.vmap(lambda a, b: numerics.matmul(a, b, **how), in_dims)(*inputs)
    for i in range(3):
        a, b = (x if dim is None else x.select(dim, i) for x, dim in zip(inputs, in_dims, strict=True))
        assert torch.equal(got[i], numerics.matmul(a, b, **how))


def test_functional_gradients_per_sample() -> None:
    weight, xs = random(20, 4), random(6, 5, 20)

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return numerics.quantize(numerics.matmul(x, weight, fidelity=MathFidelity.LoFi), B8).square().sum()

    got = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, xs)
    for i in range(6):
        w = weight.clone().requires_grad_()
        loss(w, xs[i]).backward()
        torch.testing.assert_close(got[i], w.grad)


def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = numerics.matmul(
        numerics.quantize(x, B8), w, fidelity=MathFidelity.HiFi3, out_format=DataFormat.Bfp4_b
    )
    z = numerics.unpack(numerics.pack(y.detach(), B8), B8, y.shape)
    return numerics.quantize_(y * 2, DataFormat.Lf8), z


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.long
def test_compile(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (5, 33):
        inputs = [random(rows, 20).requires_grad_(), random(20, 48).requires_grad_()]
        got, wanted = compiled(*inputs), program(*inputs)
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
        grads = [torch.autograd.grad(result[0].square().sum(), inputs) for result in (got, wanted)]
        assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))

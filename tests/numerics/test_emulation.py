"""emulate(): results and gradients in the format, fidelity, overrides, torch.compile, training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.numerics.inputs import random
from tests.numerics.models import convnet, transformer
from torch_loom import numerics
from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import DataFormat, MathFidelity, emulate, quantize

B8, B4, B2 = DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b
FORMATS = [
    B8,
    B4,
    B2,
    DataFormat.Bfp8,
    DataFormat.Float16,
    DataFormat.Float16_b,
    DataFormat.Lf8,
    DataFormat.Float32,
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small ops on several threads wait for one another where others use the processors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def is_in(values: Tensor, fmt: DataFormat) -> bool:
    return torch.equal(values, quantize(values, fmt))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_matmul_is_the_definition_put_together(fmt: DataFormat) -> None:
    a, b = random(8, 32), random(32, 16)
    with emulate(fmt):
        got = a @ b
    emulated = emulate(fmt).settings.default
    sums = numerics.matmul(
        quantize(a, fmt), quantize(b, fmt), fidelity=emulated.fidelity, accumulate=emulated.accumulate
    )
    assert torch.equal(got, quantize(sums, fmt))
    assert torch.equal(a @ b, a @ b)
    assert not torch.equal(got, a @ b)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_results_and_gradients_are_in_the_format(fmt: DataFormat) -> None:
    model = emulate(convnet(), fmt)
    x = random(4, 3, 8, 8).requires_grad_()
    output = model(x)
    functional.cross_entropy(output, torch.arange(4)).backward()
    assert is_in(output, fmt)
    for tensor in (x, *model.parameters()):
        assert tensor.grad is not None
        assert is_in(tensor.grad, fmt)


FUNCTIONS: dict[str, Any] = {
    "mm": lambda a, b: torch.mm(a, b),
    "method": lambda a, b: a.matmul(b),
    "addmm": lambda a, b: torch.addmm(torch.ones(16), a, b, beta=2.0, alpha=0.5),
    "baddbmm": lambda a, b: torch.baddbmm(torch.zeros(2, 8, 16), a.expand(2, 8, 32), b.expand(2, 32, 16)),
    "addbmm": lambda a, b: torch.addbmm(torch.zeros(8, 16), a.expand(2, 8, 32), b.expand(2, 32, 16)),
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "linear": lambda a, b: functional.linear(a, b.t(), torch.ones(16)),
    "conv1d": lambda a, b: functional.conv1d(a.view(1, 8, 32), b.view(8, 8, 8)),
    "conv3d": lambda a, b: functional.conv3d(a.view(1, 1, 4, 8, 8), b.view(8, 1, 4, 4, 4)),
    "conv_transpose2d": lambda a, b: functional.conv_transpose2d(a.view(1, 4, 8, 8), b.view(4, 8, 4, 4)),
    "mul": lambda a, b: a[:, :16] * b[:8],
    "bilinear": lambda a, b: functional.bilinear(a[:, :4], a[:, 4:12], b.reshape(16, 4, 8), None),
}


@pytest.mark.parametrize("mode", ["fast", "silicon"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_have_the_fidelity(name: str, mode: str) -> None:
    """LoFi loses bits of Bfp8 operands: each product must differ from HiFi2's and be near float32's."""
    function = FUNCTIONS[name]
    a, b = random(8, 32), random(32, 16, seed=4)
    exact = function(quantize(a, B8), quantize(b, B8))
    results = {}
    for fidelity in (MathFidelity.LoFi, MathFidelity.HiFi2, MathFidelity.HiFi4):
        with emulate(B8, fidelity=fidelity, mode=mode):
            results[fidelity] = function(a, b)
        assert is_in(results[fidelity], B8)
        assert numerics.pcc(results[fidelity], exact) > 0.995
    assert not torch.equal(results[MathFidelity.LoFi], results[MathFidelity.HiFi2])
    # HiFi2 sees all of Bfp8.
    if mode == "fast":
        assert torch.equal(results[MathFidelity.HiFi2], results[MathFidelity.HiFi4])


def test_attention_of_every_kind_agrees() -> None:
    q, k, v = (random(2, 4, 24, 16, seed=seed) for seed in range(3))
    mask = torch.ones(24, 24, dtype=torch.bool).tril()
    added = torch.zeros(24, 24).masked_fill(~mask, float("-inf"))
    attend = functional.scaled_dot_product_attention
    with emulate(B8):
        results = [attend(q, k, v, is_causal=True), attend(q, k, v, mask), attend(q, k, v, added)]
    exact = attend(q, k, v, is_causal=True)
    assert all(torch.equal(result, results[0]) for result in results)
    assert numerics.pcc(results[0], exact) > 0.999
    layer = nn.MultiheadAttention(32, 4, batch_first=True)
    x, padding = random(2, 10, 32), torch.arange(10).expand(2, 10) > 7
    for arguments in ({}, {"key_padding_mask": padding}, {"attn_mask": mask[:10, :10].logical_not()},
                      {"average_attn_weights": False}, {"need_weights": False}):  # fmt: skip
        got = emulate(layer, DataFormat.Float16_b)(x, x, x, **arguments)
        wanted = layer(x, x, x, **arguments)
        torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.01)


def test_wide_functions_and_losses_keep_more_bits() -> None:
    x = random(4, 32)
    with emulate(B8):
        shares, loss = functional.softmax(x, -1), functional.mse_loss(x, torch.zeros_like(x))
        normed = functional.layer_norm(x, (32,))
    assert is_in(shares, DataFormat.Float16_b)
    assert not is_in(shares, B8)
    assert not is_in(normed, B8)
    assert torch.equal(loss, functional.mse_loss(x, torch.zeros_like(x)))
    with emulate(B8, overrides={"softmax": B4, "mse_loss": B8, "layer_norm": None}):
        assert is_in(functional.softmax(x, -1), B4)
        assert is_in(functional.mse_loss(x, torch.zeros_like(x)), B8)
        assert torch.equal(functional.layer_norm(x, (32,)), functional.layer_norm(x, (32,)))
    with emulate(DataFormat.Bfp8):
        assert is_in(functional.softmax(x, -1), DataFormat.Float16)


def test_overrides_by_path_and_function() -> None:
    model, x = transformer(), random(2, 16, 32)
    seen: dict[str, Tensor] = {}
    for path, part in model.named_modules():
        part.register_forward_hook(lambda module, args, out, path=path: seen.__setitem__(path, out))
    overrides: dict[str, Any] = {
        "layers.1": B4,
        "layers.1.linear2": B2,
        "layers.0.linear1": None,
        "layers.0:linear": B4,
    }
    wrapped = emulate(copy.deepcopy(model), B8, overrides=overrides)
    with torch.no_grad():
        wrapped(x)
        parts = dict(wrapped.module.named_modules())
        assert parts
        outputs = dict(seen)
        with emulate(B8, overrides=overrides):
            in_context = model(x)
        assert torch.equal(in_context, outputs[""])
    assert is_in(outputs["layers.1.linear1"], B4)
    assert is_in(outputs["layers.1.linear2"], B2)
    assert not is_in(outputs["layers.1.linear1"], B2)
    assert is_in(outputs["layers.0.linear2"], B4)
    assert is_in(outputs["layers.0.linear1"], B4)  # the last pattern that fits
    inner = wrapped.detach_hooks()
    assert not any(part._forward_pre_hooks for part in inner.modules())


def test_parameters_are_converted_once_and_again_when_they_change() -> None:
    layer, x = nn.Linear(32, 16), random(4, 32)
    model = emulate(layer, B8)
    with torch.no_grad():
        first = model(x)
        kept = model.emulation.weights.get(layer.weight, model.emulation.settings.default)
        assert model.emulation.weights.get(layer.weight, model.emulation.settings.default) is kept
        assert torch.equal(kept, quantize(layer.weight, B8))
        layer.weight.mul_(2)
        assert torch.equal(model(x), emulate(layer, B8)(x))
        assert not torch.equal(model(x), first)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW], ids=lambda make: make.__name__)
def test_training_keeps_float32_parameters(make: Any) -> None:
    x, labels = random(16, 3, 8, 8), torch.arange(16) % 10
    losses = {}
    for style in ("context", "module"):
        model = convnet()
        optimizer = make(model.parameters(), lr=1e-2)
        running = emulate(model, B8) if style == "module" else model

        def step(model: nn.Module = running, optimizer: Any = optimizer) -> float:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return float(loss)

        if style == "context":
            with emulate(B8):
                losses[style] = [step() for _ in range(12)]
        else:
            losses[style] = [step() for _ in range(12)]
        assert not is_in(next(model.parameters()), B8)
        assert not is_in(model[1].running_mean, B8)  # type: ignore[index]
    assert losses["context"] == losses["module"]
    assert losses["context"][-1] < losses["context"][0] / 2


def test_a_step_that_fails_does_not_end_the_emulation() -> None:
    parameter = nn.Parameter(random(4))
    parameter.grad = torch.ones(4)

    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise ZeroDivisionError

    with emulate(B8):
        with pytest.raises(ZeroDivisionError):
            Failing([parameter], lr=0.1).step()
        assert is_in(random(4, 20) * random(4, 20), B8)


def test_in_place_and_out() -> None:
    x, y = random(4, 20), random(4, 20, seed=4)
    with emulate(B8):
        z = x + 0
        z.add_(y)
        z *= y
        out = torch.empty(4, 20)
        torch.add(x, y, out=out)
    assert is_in(z, B8)
    assert torch.equal(out, quantize(quantize(x, B8) + quantize(y, B8), B8))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, c: a[:, :16].clone().mul_(b[:8]),
        lambda a, b, c: c.clone().addmm_(a, b),
        lambda a, b, c: torch.matmul(a, b, out=torch.empty(0)),
    ],
    ids=["mul_", "addmm_", "matmul out"],
)
def test_products_that_write_have_the_fidelity(function: Any) -> None:
    a, b, c = random(8, 32), random(32, 16, seed=4), random(8, 16, seed=5)
    results = []
    for fidelity in (MathFidelity.LoFi, MathFidelity.HiFi2):
        with emulate(B8, fidelity=fidelity):
            results.append(function(a, b, c))
        assert is_in(results[-1], B8)
    assert not torch.equal(*results)


def test_what_the_program_writes_is_converted_again() -> None:
    x, raw = random(4, 32), random(4, 32, seed=4)
    for write in (
        lambda t: t.copy_(raw),
        lambda t: t.__setitem__(0, raw[0]),
        lambda t: t[1].copy_(raw[1]),
        lambda t: t.unsqueeze(0).normal_(),
    ):
        with emulate(B8):
            made = x * 1.5
            write(made)
            assert not is_in(made, B8)
            got = made.neg()
        assert torch.equal(got, -quantize(made, B8))
    with emulate(B8):
        x = random(4, 32).requires_grad_()
        y = x * 1.0
        y.unsqueeze_(0)
        assert is_in(y.detach(), B8)


def test_a_gradient_is_no_view_of_its_tensor() -> None:
    with emulate(B8):
        x = torch.relu(random(4, 32)).requires_grad_()
        x.grad = random(4, 32, seed=4)
        doubled = x.grad * 2
    assert torch.equal(doubled, quantize(random(4, 32, seed=4), B8) * 2)


def test_results_that_are_tuples() -> None:
    x = random(4, 20)
    with emulate(B8):
        found = torch.max(x, 1)
        parts = torch.aminmax(x)
    assert is_in(found.values, B8)
    assert type(found).__name__ == "max"
    assert is_in(parts.max, B8)


@pytest.mark.parametrize("device", ["cpu", "loom"])
def test_autocast_has_no_say_in_products(device: str) -> None:
    model = emulate(transformer().to(device), B8)
    x, w = random(2, 16, 32).to(device), random(32, 32).to(device)
    products = {
        "matmul": lambda: numerics.matmul(x, w, fidelity=MathFidelity.HiFi3),
        "integers": lambda: numerics.matmul(x.round(), w.round(), accumulate=DataFormat.Int32),
        "convolution": lambda: numerics.conv2d(x[:, None], w[None, None, :3, :3], w[0, :1]),
        "emulated": lambda: model(x),
    }
    for name, product in products.items():
        wanted = product()
        with torch.autocast(device, dtype=torch.bfloat16):
            got = product()
        assert got.dtype is torch.float32, name
        assert torch.equal(got, wanted), name
    (grad,) = torch.autograd.grad(wanted.sum(), model.module.layers[0].linear1.weight)
    with torch.autocast(device, dtype=torch.bfloat16):
        (again,) = torch.autograd.grad(model(x).sum(), model.module.layers[0].linear1.weight)
    assert torch.equal(again, grad)


def test_chips_without_a_format() -> None:
    grayskull = {DataFormat.Float16_b, B8, DataFormat.Float16, DataFormat.Bfp8}
    assert emulate(B8, formats=grayskull).settings.default.accumulate is DataFormat.Float16_b
    with pytest.raises(FormatError, match=r"the chip lacks Bfp4_b; allowed: Bfp8, Bfp8_b"):
        emulate(B4, formats=grayskull)
    with pytest.warns(UserWarning, match="Float16_b takes its place"):
        settings = emulate(B8, formats=grayskull, accumulate=DataFormat.Float32).settings
    assert settings.default.accumulate is DataFormat.Float16_b
    with pytest.raises(FormatError, match="does not keep sums in Float32"):
        emulate(B8, formats=grayskull, overrides={"head": {"accumulate": DataFormat.Float32}})


def test_bad_arguments_are_named() -> None:
    with pytest.raises(
        FormatError, match=r"share an exponent family.*overrides\['head'\] is Bfp4 \(family a\)"
    ):
        emulate(B8, overrides={"head": DataFormat.Bfp4})
    with pytest.raises(FormatError, match=r"overrides\['head'\] is 'Bfp4_b'; allowed"):
        emulate(B8, overrides={"head": "Bfp4_b"})  # type: ignore[dict-item]
    with pytest.raises(FormatError, match=r"overrides\['head'\].*Invalid"):
        emulate(B8, overrides={"head": DataFormat.Invalid})
    with pytest.raises(OperandError, match="model is a int"):
        emulate(3, B8)  # type: ignore[call-overload]
    with pytest.raises(FormatError, match="not a DataFormat"):
        emulate(convnet(), None)  # type: ignore[call-overload]
    with pytest.raises(FormatError, match="needs HiFi4"):
        emulate(DataFormat.Int8, fidelity=MathFidelity.LoFi)

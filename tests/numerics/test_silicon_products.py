"""Every sum of products under ``mode="silicon"`` is the matrix unit's, in blocks of K where asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from torch_loom import numerics
from torch_loom.errors import FormatError
from torch_loom.numerics import DataFormat, MathFidelity, emulate, quantize

B8, B16, F32 = DataFormat.Bfp8_b, DataFormat.Float16_b, DataFormat.Float32


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def product(a: Tensor, b: Tensor, **options: Any) -> Tensor:
    """Of operands in Float16_b, whose results the packer of 16-bit destinations leaves as they are."""
    return numerics.matmul(a, b, mode="silicon", fidelity=MathFidelity.HiFi4, accumulate=B16, **options)


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_one_and_three_dimensions_are_products_of_windows(rank: int) -> None:
    x, weight = random(2, 6, *(9, 8, 7)[:rank], seed=1), random(4, 3, *(3,) * rank, seed=2)
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    options = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}
    with emulate(B16, fidelity=MathFidelity.HiFi4, mode="silicon"):
        out = function(x, weight, None, **options)
    padded = functional.pad(x, [1, 1] * rank)
    parts = []
    for inputs, filters in zip(padded.chunk(2, 1), weight.chunk(2), strict=True):
        for dim in range(rank):
            inputs = inputs.unfold(2 + dim, 5, 2)[..., ::2]
        windows = inputs.permute(0, *range(2, 2 + rank), 1, *range(2 + rank, 2 + 2 * rank))
        sums = product(windows.flatten(1 + rank), filters.flatten(1).T)
        parts.append(sums.movedim(-1, 1))
    assert torch.equal(out, torch.cat(parts, 1))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_are_products_too(rank: int) -> None:
    kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    torch.manual_seed(0)
    layer = kinds[rank - 1](4, 6, 3, stride=2, padding=1, output_padding=1, dilation=2, groups=2)
    x = random(2, 4, *(5, 6, 4)[:rank]).requires_grad_()
    with emulate(B16, fidelity=MathFidelity.HiFi4, mode="silicon"):
        out = layer(x)
        out.sum().backward()
    with emulate(B16, fidelity=MathFidelity.HiFi4):
        fast = layer(x)
    exact = layer(x)
    assert out.shape == exact.shape
    assert not torch.equal(out, fast)
    assert (out - exact).norm() < 0.02 * exact.norm()
    assert x.grad is not None
    (wanted,) = torch.autograd.grad(exact.sum(), x)
    assert (x.grad - wanted).norm() < 0.02 * wanted.norm()


def test_other_names_of_products_are_products() -> None:
    a, b = random(3, 5, 96, seed=1), random(3, 96, 7, seed=2)
    with emulate(B16, fidelity=MathFidelity.HiFi4, mode="silicon"):
        assert torch.equal(torch.einsum("bij,bjk->bik", a, b), product(a, b))
        assert torch.equal(torch.einsum("bij,bjk->kbi", a, b), product(a, b).permute(2, 0, 1))
        assert torch.equal(torch.einsum("bij,jk->bik", a, b[0]), product(a, b[0]))
        assert torch.equal(torch.inner(a[0], b[0].T), product(a[0], b[0]))
        assert torch.equal(torch.tensordot(a, b[0], 1), product(a, b[0]))
        assert torch.equal(torch.vdot(a[0, 0], b[0, :, 0]), product(a[0, 0], b[0, :, 0]))
        weight = random(4, 96, 7, seed=3)
        half = product(a[0], weight.permute(1, 0, 2).reshape(96, 28)).view(5, 4, 7)
        wanted = product(half, b[0, :5].unsqueeze(-1)).squeeze(-1)
        assert torch.equal(functional.bilinear(a[0], b[0, :5], weight), wanted)


def test_sums_without_a_rule_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_loom.numerics.emulation import bilinear

    monkeypatch.setattr(bilinear, "_told", set())
    a, b = random(5, 96, seed=1), random(5, 96, seed=2)
    with emulate(B16, mode="silicon"):
        with pytest.warns(UserWarning, match="einsum of 'ij,ij->ij': mode 'silicon' has no rule"):
            torch.einsum("ij,ij->ij", a, b)
        with pytest.warns(UserWarning, match="vecdot: mode 'silicon' has no rule"):
            torch.linalg.vecdot(a, b)
        torch.outer(a[0], b[0])  # sums nothing


@pytest.mark.parametrize("accumulate", [B16, F32])
@pytest.mark.parametrize("l1_accumulate", [False, True])
def test_blocks_of_k(accumulate: DataFormat, l1_accumulate: bool) -> None:
    a, b = quantize(random(32, 256, seed=1), B8), quantize(random(256, 64, seed=2), B8)
    out_format = B8 if accumulate is B16 else None
    how: Any = {"mode": "silicon", "accumulate": accumulate, "out_format": out_format}
    blocks = numerics.matmul(a, b, k_block=2, l1_accumulate=l1_accumulate, **how)
    whole = numerics.matmul(a, b, **how)
    assert torch.equal(numerics.matmul(a, b, k_block=8, **how), whole)
    if accumulate is F32 and not l1_accumulate:
        assert torch.equal(blocks, whole)  # they wait in all their bits
    elif accumulate is B16:
        assert not torch.equal(blocks, whole)
    assert (blocks - a @ b).norm() < 0.05 * (a @ b).norm()


@pytest.mark.parametrize("bias", [False, True])
def test_sums_of_layers_wait_in_the_format_of_the_result(bias: bool) -> None:
    torch.manual_seed(0)
    layer, windows = nn.Linear(256, 64, bias=bias), nn.Conv2d(64, 32, 3, bias=bias)
    for module, x in ((layer, random(8, 256)), (windows, random(2, 64, 6, 6))):
        with torch.no_grad():
            whole = emulate(module, B8, mode="silicon")(x)
            blocks = emulate(module, B8, mode="silicon", k_block=1)(x)
        # Each of them rounds to eight bits beside the largest of sixteen.
        assert (whole != blocks).float().mean() > 0.3
        assert (whole - blocks).norm() < 0.2 * whole.norm()
    x, weight = quantize(random(2, 64, 6, 6), B8), quantize(windows.weight.detach(), B8)
    made: Any = {"mode": "silicon", "accumulate": B16, "out_format": B8}
    assert not torch.equal(numerics.conv2d(x, weight, k_block=1, **made), numerics.conv2d(x, weight, **made))


def test_the_precise_packer() -> None:
    x, layer = random(8, 64), nn.Linear(64, 64, bias=False)
    with torch.no_grad():
        default = emulate(layer, B8, mode="silicon")(x)
        precise = emulate(layer, B8, mode="silicon", packer="packer_precise")(x)
        operand, weight = quantize(x, B8, rule="host"), quantize(layer.weight, B8, rule="host")
        sums = numerics.matmul(operand, weight.T, mode="silicon", fidelity=MathFidelity.HiFi2, accumulate=B16)
    assert torch.equal(precise, quantize(sums, B8, rule="packer_precise"))
    assert torch.equal(default, quantize(sums, B8, rule="packer"))
    assert not torch.equal(default, precise)


def test_no_second_model_is_kept() -> None:
    layer, x = nn.Linear(64, 64), random(8, 64)
    silicon, fast = emulate(layer, B8, mode="silicon"), emulate(layer, B8)
    with torch.no_grad():
        assert torch.equal(silicon(x), silicon(x))
        fast(x)
    assert not silicon.emulation.weights._kept
    assert len(fast.emulation.weights._kept) == 2


def test_bad_input() -> None:
    x = torch.ones(4, 64)
    for call, words in (
        (
            lambda: emulate(B8, mode="silicon", packer="host"),
            "packer is 'host'; allowed: packer, packer_precise",
        ),
        (lambda: emulate(B8, packer="packer_precise"), "packer is 'packer_precise' in mode 'fast'; allowed"),
        (lambda: emulate(B8, k_block=2), "emulate: k_block is 2 in mode 'fast'; allowed: mode='silicon'"),
        (lambda: numerics.matmul(x, x.T, l1_accumulate=True), "matmul: l1_accumulate is True in mode 'fast'"),
        (lambda: numerics.matmul(x, x.T, mode="silicon", k_block=0), "matmul: k_block is 0; allowed: tiles"),
    ):
        with pytest.raises(FormatError, match=words):
            call()
    emulate(B8, k_block=2, overrides={"linear": {"mode": "silicon"}})


def test_calls_that_pytorch_refuses_are_refused() -> None:
    a, b = random(3, 4, 6), random(6, 4, 5)
    with emulate(B16, mode="silicon"):
        with pytest.raises(RuntimeError, match="contracted dimensions"):
            torch.tensordot(a, b, dims=2)
        with pytest.raises(RuntimeError, match="1D tensors"):
            torch.vdot(random(2, 2), random(2, 2))
        with pytest.raises(RuntimeError, match="z"):
            torch.einsum("ij,jk->ikz", random(3, 3), random(3, 3))


@pytest.mark.filterwarnings("ignore:einsum")
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(1, 3, 32), (4, 32, 5)]),
        ("ij,jk->ik", [(3, 1), (4, 5)]),
        ("ij,jk->ik", [(3, 0), (0, 5)]),
    ],
)
def test_sums_that_broadcast_or_are_empty_have_their_shape(equation: str, shapes: list[Any]) -> None:
    given = [random(*shape) for shape in shapes]
    expected = torch.einsum(equation, *given)
    with emulate(B16, mode="silicon"):
        found = torch.einsum(equation, *given)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.2)

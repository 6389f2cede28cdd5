"""Scaled dot product attention, and what is built on it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import torch_loom.device as loom


@pytest.mark.parametrize("masking", ["none", "causal", "bool", "float"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_and_gradients_are_the_cpus(masking: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(2, 3, 5, 4, dtype=dtype) for _ in range(3)]
    masks = {"bool": torch.ones(5, 5).tril().bool(), "float": torch.randn(5, 5, dtype=dtype)}
    results = []
    for device in ("cpu", "loom"):
        query, key, value = (tensor.to(device, copy=True).requires_grad_() for tensor in tensors)
        mask = masks[masking].to(device) if masking in masks else None
        out = scaled_dot_product_attention(query, key, value, mask, is_causal=masking == "causal")
        out.float().square().sum().backward()
        results.append([out, query.grad, key.grad, value.grad])
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert ours.is_loom
        torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_backend_can_be_chosen(backend: SDPBackend) -> None:
    x = torch.randn(1, 1, 4, 8)
    with sdpa_kernel(backend):
        got = scaled_dot_product_attention(*[x.to("loom")] * 3)
    torch.testing.assert_close(got.cpu(), scaled_dot_product_attention(x, x, x))


@pytest.mark.parametrize("name", ["flash", "efficient"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_kernels_that_cuda_has_by_name(name: str, is_causal: bool) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    there = [x.detach().to("loom").requires_grad_() for x in inputs]
    bias = None if is_causal or name == "flash" else torch.randn(2, 3, 5, 5)
    if name == "flash":
        out, logsumexp, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            *there, 0.0, is_causal, scale=0.3
        )
    else:
        out, logsumexp, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
            *there, None if bias is None else bias.to("loom"), True, 0.0, is_causal, scale=0.3
        )
    expected = scaled_dot_product_attention(*inputs, bias, is_causal=is_causal, scale=0.3)
    torch.testing.assert_close(out.cpu(), expected)
    # The memory-efficient kernel's rows come in tiles of 32.
    assert logsumexp.shape == ((2, 3, 5) if name == "flash" else (2, 3, 32))
    assert logsumexp.dtype == torch.float32
    gradients = torch.autograd.grad(out.square().sum(), there)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected.square().sum(), inputs), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [5, 16, 17])
@pytest.mark.parametrize("side", [False, True], ids=["in place", "queued"])
def test_rows_of_a_masks_gradient_are_aligned_as_cudas(columns: int, side: bool) -> None:
    torch.manual_seed(0)
    query, rows = torch.randn(2, 3, 5, 8), torch.randn(2, 3, columns, 8)
    mask = torch.randn(2, 3, 5, columns)
    gradients = []
    with torch.loom.stream(torch.loom.Stream() if side else torch.loom.default_stream()):
        for device in ("loom", "cpu"):
            own = mask.to(device, copy=True).requires_grad_()
            given = query.to(device).requires_grad_(), *(rows.to(device) for _ in range(2))
            if device == "loom":
                efficient = torch.ops.aten._scaled_dot_product_efficient_attention
                output = efficient(*given, own, True, 0.0, False)[0]
            else:
                output = scaled_dot_product_attention(*given, own)
            gradients.append(torch.autograd.grad(output.square().sum(), own)[0])
        assert gradients[0].stride(2) == (columns + 15) // 16 * 16
        torch.testing.assert_close(gradients[0].cpu(), gradients[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_is_queued(need_weights: bool) -> None:
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        expected, _ = module(x, x, x, need_weights=need_weights)
        there, y = copy.deepcopy(module).to("loom"), x.to("loom")
        with torch.loom.stream(torch.loom.Stream()):
            got, _ = there(y, y, y, need_weights=need_weights)
            torch.loom.synchronize()
    torch.testing.assert_close(got.cpu(), expected)


def saved_by(
    name: str, dropout: float
) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor]:
    operands = [torch.randn(1, 2, 6, 8, device="loom") for _ in range(3)]
    if name == "flash":
        out, logsumexp, *_, seed, _, _ = torch.ops.aten._scaled_dot_product_flash_attention(
            *operands, dropout
        )
    else:
        out, logsumexp, seed, _ = torch.ops.aten._scaled_dot_product_efficient_attention(
            *operands, None, True, dropout
        )
    return operands, out, logsumexp, seed


@pytest.mark.parametrize("name", ["flash", "efficient"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gradient": torch.ones(1, 2, 0, 8)}, r"the gradient must be Float of the sizes \[1, 2, 6, 8\]"),
        ({"gradient": torch.ones(1, 2, 9, 8)}, r"the gradient must be .*\[1, 2, 9, 8\]"),
        ({"out": torch.ones(1, 2, 0, 8)}, "the output must be"),
        ({"logsumexp": torch.ones(1, 1, 6)}, r"logsumexp must be .*\[1, 1, 6\]"),
        ({"key": torch.ones(1, 2, 3, 8)}, "key and value must have one length, got 3 and 6"),
        ({"seed": torch.empty(0, dtype=torch.int64)}, "state of dropout must be what forward returned"),
    ],
)
def test_a_named_gradient_refuses_what_forward_did_not_return(
    name: str, wrong: dict[str, torch.Tensor], words: str
) -> None:
    (query, key, value), out, logsumexp, seed = saved_by(name, 0.5)
    given = {"gradient": out, "key": key, "out": out, "logsumexp": logsumexp, "seed": seed}
    given |= {argument: tensor.to("loom") for argument, tensor in wrong.items()}
    operands = (given["gradient"], query, given["key"], value)
    saved = (given["out"], given["logsumexp"])
    aten, seeds = torch.ops.aten, (given["seed"], given["seed"])
    gradients_of = {
        "flash": lambda: aten._scaled_dot_product_flash_attention_backward(
            *operands, *saved, None, None, 6, 6, 0.5, False, *seeds
        ),
        "efficient": lambda: aten._scaled_dot_product_efficient_attention_backward(
            *operands, None, *saved, *seeds, 0.5, [True, True, True, False]
        ),
    }
    with pytest.raises(RuntimeError, match=words):
        gradients_of[name]()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"query": torch.ones(2, 6, 8)}, r"must be \[batch, heads, time, width\], got \[2, 6, 8\]"),
        ({"query": torch.ones(())}, r"must be \[batch, heads, time, width\], got \[\]"),
        ({"value": torch.ones(1, 2, 6, 8).half()}, "one floating dtype, got Float, Float and Half"),
        ({"key": torch.ones(3, 2, 6, 8)}, "one batch size, got 1, 3 and 1"),
        ({"query": torch.ones(1, 3, 6, 8)}, "heads of the query, 3, or a divisor of them, got 2 and 2"),
        ({"key": torch.ones(1, 4, 6, 8)}, "heads of the query, 2, or a divisor of them, got 4 and 2"),
        ({"key": torch.ones(1, 2, 6, 16)}, "query and key must have one width, got 8 and 16"),
        ({"bias": torch.ones(2, 6, 6)}, r"a bias must have 2 or 4 dimensions, got \[2, 6, 6\]"),
        ({"bias": torch.ones(1, 2, 6, 5)}, r"a bias must expand to .*\[1, 2, 6, 6\], got \[1, 2, 6, 5\]"),
        ({"bias": torch.ones(1, 2, 6, 6).bool()}, "should match query's dtype, Float, got Bool"),
    ],
)
def test_a_named_kernel_says_which_operand_does_not_fit(wrong: dict[str, torch.Tensor], words: str) -> None:
    given: dict[str, torch.Tensor | None] = {
        name: torch.ones(1, 2, 6, 8) for name in ("query", "key", "value")
    }
    given |= {"bias": None, **wrong}
    operands = [None if one is None else one.to("loom") for one in given.values()]
    with pytest.raises(RuntimeError, match=words):
        torch.ops.aten._scaled_dot_product_efficient_attention(*operands, False)


@pytest.mark.parametrize("dropout", [-0.1, 1.5, math.nan])
def test_a_named_kernel_refuses_what_is_no_probability(dropout: float) -> None:
    with pytest.raises(RuntimeError, match="probability from 0 to 1, got"):
        saved_by("flash", dropout)


def test_logsumexp_of_rows_without_keys_and_behind_the_query_is_infinite() -> None:
    query, key = torch.ones(1, 1, 5, 8, device="loom"), torch.ones(1, 1, 3, 8, device="loom")
    sums = torch.ops.aten._scaled_dot_product_flash_attention(query, key, key, 0.0, True)[1]
    assert sums[0, 0, :2].isposinf().all()
    assert sums[0, 0, 2:].isfinite().all()
    empty = key[:, :, :0]
    assert torch.ops.aten._scaled_dot_product_flash_attention(query, empty, empty)[1].isposinf().all()
    tiles = torch.ops.aten._scaled_dot_product_efficient_attention(query, key, key, None, True)[1]
    assert tiles[0, 0, :5].isfinite().all()
    assert tiles[0, 0, 5:].isposinf().all()


def test_dropout_draws_from_the_device() -> None:
    x = torch.randn(1, 1, 16, 8, device="loom")
    before = torch.get_rng_state()
    torch.loom.manual_seed(1)
    first = scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    assert not torch.equal(scaled_dot_product_attention(x, x, x, dropout_p=0.5), first)
    torch.loom.manual_seed(1)
    assert torch.equal(scaled_dot_product_attention(x, x, x, dropout_p=0.5), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_numbers_of_dropout_are_philox_of_seed_and_offset() -> None:
    numbers = torch.ops.aten._fill_mem_eff_dropout_mask_(torch.empty(1, 1, 2, 3, device="loom"), 0.1, 42, 0)
    # The first number that cuRAND's Philox has under this seed, as `torch.rand(1, device="cuda")` shows it.
    assert round(numbers.flatten()[0].item(), 4) == 0.6130
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    backward = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    x = torch.rand(2, 3, 5, 8, generator=torch.Generator().manual_seed(1))
    loom.manual_seed(7)
    for expected_offset in (0, 4):
        q, k, v = (x.to("loom") * factor for factor in (1, 2, 3))
        output, sums, seed, offset = kernel(q, k, v, None, True, 0.3)
        assert (seed.item(), offset.item()) == (7, expected_offset)
        drawn = torch.ops.aten._fill_mem_eff_dropout_mask_(
            torch.empty(2, 3, 5, 5, device="loom"), 0.3, 7, expected_offset
        ).cpu()
        own = [(x * factor).requires_grad_() for factor in (1, 2, 3)]
        weights = (own[0] @ own[1].mT / 8**0.5).softmax(-1) * (drawn > 0.3) / 0.7
        wanted = weights @ own[2]
        torch.testing.assert_close(output.cpu(), wanted)
        found = backward(output, q, k, v, None, output, sums, seed, offset, 0.3, [True] * 3 + [False])
        torch.testing.assert_close(
            tuple(gradient.cpu() for gradient in found[:3]), torch.autograd.grad(wanted, own, wanted.detach())
        )


@pytest.mark.parametrize("training", [True, False])
def test_transformer_layer(training: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).train(training)
    x = torch.randn(2, 3, 8)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    with torch.set_grad_enabled(training):
        expected = layer(x, src_key_padding_mask=padding)
        got = copy.deepcopy(layer).to("loom")(x.to("loom"), src_key_padding_mask=padding.to("loom"))
    torch.testing.assert_close(got.cpu()[~padding], expected[~padding])


def test_multihead_attention_weights() -> None:
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8)
    expected = attention(x, x, x)
    got = copy.deepcopy(attention).to("loom")(*[x.to("loom")] * 3)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)

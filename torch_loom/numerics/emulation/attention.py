"""Attention out of its products: what PyTorch computes in one kernel, a chip computes op by op.

The functions take ``run(func, *args, **kwargs)``, which computes a function of PyTorch under the emulation,
``product(a, b, wide=False)``, a matmul, ``widen(t)``, which rounds to the wide format, and ``take(t)``, which
converts an operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.numerics import _fits
from torch_loom.numerics.emulation.operands import pass_mark

Run = Callable[..., Any]
Op = Callable[..., Tensor]


def is_masked_rightly(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *rest: Any, **options: Any
) -> bool:
    """Whether a mask has the shape of the scores, or one that expands to it."""
    if attn_mask is None:
        return True
    try:
        batch = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
            query.shape[:-2], query.shape[:-2] if options.get("enable_gqa") else key.shape[:-2]
        )
    except RuntimeError:
        return False
    return _fits.expands(attn_mask, (*batch, query.shape[-2], key.shape[-2]))


def scaled_dot_product_attention(
    run: Run,
    product: Op,
    widen: Op,
    take: Op,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query · key^T · scale + mask) · value``; scores stay in the wide format until the softmax.

    A mask's large negative numbers would take the exponent of their whole block in a block format.
    """
    query, key, value = take(query), take(key), take(value)
    if enable_gqa:
        heads = query.shape[-3]
        key, value = (
            pass_mark(each.repeat_interleave(heads // each.shape[-3], -3), each) for each in (key, value)
        )
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = product(query, pass_mark(key.transpose(-2, -1), key), wide=True) * factor
    if is_causal:
        allowed = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    if attn_mask is not None:
        if attn_mask.dtype is torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        else:
            scores = scores + attn_mask
    shares = run(functional.softmax, widen(scores), -1)
    if dropout_p > 0.0:
        shares = run(functional.dropout, shares, dropout_p)
    return product(shares, value)


def _projections(run: Run, arguments: dict[str, Any]) -> list[Tensor]:
    """Query, key and value, [L, N, E] each."""
    inputs = [arguments["query"], arguments["key"], arguments["value"]]
    bias = arguments["in_proj_bias"]
    biases = [None, None, None] if bias is None else list(bias.chunk(3))
    if arguments["use_separate_proj_weight"]:
        weights = [arguments["q_proj_weight"], arguments["k_proj_weight"], arguments["v_proj_weight"]]
    elif inputs[0] is inputs[1] and inputs[1] is inputs[2]:
        projected = run(functional.linear, inputs[0], arguments["in_proj_weight"], bias)
        return list(pass_mark(projected.chunk(3, -1), projected))
    else:
        weights = list(arguments["in_proj_weight"].chunk(3))
    return [run(functional.linear, *each) for each in zip(inputs, weights, biases, strict=True)]


def _merged_mask(arguments: dict[str, Any], batch: int, heads: int, dtype: torch.dtype) -> Tensor | None:
    """The masks of positions and padding as a single mask, added to scores of [N, heads, L, S]."""

    def added(mask: Tensor | None) -> Tensor | None:
        if mask is None or mask.dtype is not torch.bool:
            return mask
        return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))

    mask, padding = added(arguments["attn_mask"]), added(arguments["key_padding_mask"])
    if mask is not None and mask.dim() == 3:
        mask = mask.view(batch, heads, *mask.shape[1:])
    if padding is not None:
        padding = padding.view(batch, 1, 1, -1)
        mask = padding if mask is None else mask + padding
    return mask


def arguments_of_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> dict[str, Any]:
    """The arguments of ``multi_head_attention_forward`` by name; torch.compile traces no signatures."""
    return {
        "query": query,
        "key": key,
        "value": value,
        "num_heads": num_heads,
        "in_proj_weight": in_proj_weight,
        "in_proj_bias": in_proj_bias,
        "is_rare": any(each is not None for each in (bias_k, bias_v, static_k, static_v)) or add_zero_attn,
        "dropout_p": dropout_p if training else 0.0,
        "out_proj_weight": out_proj_weight,
        "out_proj_bias": out_proj_bias,
        "key_padding_mask": key_padding_mask,
        "need_weights": need_weights,
        "attn_mask": attn_mask,
        "use_separate_proj_weight": use_separate_proj_weight,
        "q_proj_weight": q_proj_weight,
        "k_proj_weight": k_proj_weight,
        "v_proj_weight": v_proj_weight,
        "average_attn_weights": average_attn_weights,
    }


def multi_head_attention(
    run: Run, product: Op, widen: Op, arguments: dict[str, Any]
) -> tuple[Tensor, Tensor | None] | None:
    """``multi_head_attention_forward`` by its arguments; None: the call stays whole (rare arguments)."""
    if arguments["is_rare"]:
        return None
    query = arguments["query"]
    is_batched = query.dim() == 3
    if not is_batched:
        changed = {name: arguments[name].unsqueeze(1) for name in ("query", "key", "value")}
        if query is arguments["key"] and query is arguments["value"]:
            changed["key"] = changed["value"] = changed["query"]
        if arguments["key_padding_mask"] is not None:
            changed["key_padding_mask"] = arguments["key_padding_mask"].unsqueeze(0)
        arguments = {**arguments, **changed}
    length, batch, width = arguments["query"].shape
    heads = arguments["num_heads"]
    q, k, v = (
        pass_mark(each.view(each.shape[0], batch, heads, -1).permute(1, 2, 0, 3), each)
        for each in _projections(run, arguments)
    )
    mask = _merged_mask(arguments, batch, heads, q.dtype)
    factor = 1.0 / math.sqrt(q.shape[-1])
    scores = product(q, pass_mark(k.transpose(-2, -1), k), wide=True) * factor
    if mask is not None:
        scores = scores + mask
    shares = run(functional.softmax, widen(scores), -1)
    if arguments["dropout_p"] > 0.0:
        shares = run(functional.dropout, shares, arguments["dropout_p"])
    mixed = product(shares, v)
    mixed = pass_mark(mixed.permute(2, 0, 1, 3).reshape(length, batch, width), mixed)
    result = run(functional.linear, mixed, arguments["out_proj_weight"], arguments["out_proj_bias"])
    if not is_batched:
        result = pass_mark(result.squeeze(1), result)
    if not arguments["need_weights"]:
        return result, None
    told = shares.mean(1) if arguments["average_attn_weights"] else shares
    return result, told if is_batched else told.squeeze(0)

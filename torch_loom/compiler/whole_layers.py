"""Ops that are whole layers, made of others where these compute in formats of their own.

In ``eval()`` and without gradients Dynamo's graphs have ``nn.TransformerEncoderLayer`` as one op, whose inner
products and results no format would reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_SOURCE_MASK, _PADDING_MASK = 0, 1  # else a mask of both, for each head


def _kept(mask: Tensor, kind: int | None) -> Tensor:
    """Return the mask of scaled_dot_product_attention: true where keys count, or what is added to scores."""
    allowed = mask.logical_not() if mask.dtype is torch.bool else mask
    if kind == _PADDING_MASK:
        return allowed[:, None, None, :]
    return allowed if kind == _SOURCE_MASK or allowed.dim() == 4 else allowed.unsqueeze(1)


def _transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def attention(x: Tensor) -> Tensor:
        joint = functional.linear(x, qkv_weight, qkv_bias)
        parts = joint.view(*joint.shape[:-1], 3, num_heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        kept = None if mask is None else _kept(mask, mask_type)
        heads = functional.scaled_dot_product_attention(query, key, value, attn_mask=kept)
        return functional.linear(heads.transpose(1, 2).flatten(2), proj_weight, proj_bias)

    def feed_forward(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        active = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(active, ffn_weight_2, ffn_bias_2)

    def first_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attention(first_norm(src))
        return x + feed_forward(second_norm(x))
    x = first_norm(src + attention(src))
    return second_norm(x + feed_forward(x))


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return what stands for each op that is a layer, as ``aot_autograd`` takes it."""
    return {torch.ops.aten._transformer_encoder_layer_fwd.default: _transformer_encoder_layer}

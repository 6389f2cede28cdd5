"""Attention and what stands around it."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.compiler.onnx.table import Float, Int, op


@op("Attention")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    is_causal: Int = 0,
    kv_num_heads: Int | None = None,
    left_window_size: Int = -1,
    q_num_heads: Int | None = None,
    qk_matmul_output_mode: Int = 0,
    right_window_size: Int = -1,
    scale: Float | None = None,
    softcap: Float = 0.0,
    softmax_precision: Int | None = None,
    num_outputs: int = 1,
) -> tuple[Tensor | None, ...]:
    """Scaled dot-product attention with the keys of earlier tokens; [B, H, T, E] or [B, T, H*E]."""
    flat = query.dim() == 3
    if flat:
        query = _heads(query, q_num_heads or 1)
        key, value = _heads(key, kv_num_heads or 1), _heads(value, kv_num_heads or 1)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
    present_key, present_value = key, value
    if query.shape[1] != key.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    window = (left_window_size, 0 if is_causal else right_window_size)
    bias = _bias(query, key, mask, lengths, window, past)
    scores = None
    if softcap == 0.0 and num_outputs < 4:
        made = functional.scaled_dot_product_attention(query, key, value, bias, scale=scale)
        if bias is not None:
            # Rows that may see nothing are zero in ONNX.
            blind = torch.isneginf(bias).all(-1, keepdim=True)
            made = made.masked_fill(blind, 0.0)
    else:
        made, scores = _by_hand(query, key, value, bias, scale, softcap, qk_matmul_output_mode)
    if flat:
        made = made.transpose(1, 2).flatten(2)
    return (made, present_key, present_value, scores)[:num_outputs]


def _heads(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads).transpose(1, 2)


def _bias(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    lengths: Tensor | None,
    window: tuple[int, int],
    past: int,
) -> Tensor | None:
    """Return what is added to the scores, minus infinity where nothing may be seen; None: nothing is."""
    length, width = query.shape[2], key.shape[2]
    bias = None
    if mask is not None:
        bias = mask
        if mask.dtype is torch.bool:
            bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
        if bias.shape[-1] < width:
            bias = functional.pad(bias, (0, width - bias.shape[-1]), value=-torch.inf)
    columns = torch.arange(width, device=query.device)
    hidden = None
    left, right = window
    rows = torch.arange(past, past + length, device=query.device).unsqueeze(1)
    if lengths is not None:
        rows = rows + (lengths.reshape(-1, 1, 1, 1) - length)
        hidden = columns >= lengths.reshape(-1, 1, 1, 1)
    if right >= 0:
        later = columns > rows + right
        hidden = later if hidden is None else hidden | later
    if left >= 0:
        earlier = columns < rows - left
        hidden = earlier if hidden is None else hidden | earlier
    if hidden is None:
        return bias
    if bias is None:
        return torch.zeros_like(hidden, dtype=query.dtype).masked_fill(hidden, -torch.inf)
    return bias + torch.zeros_like(hidden, dtype=query.dtype).masked_fill(hidden, -torch.inf)


def _by_hand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float | None,
    softcap: float,
    mode: int,
) -> tuple[Tensor, Tensor]:
    """Return the result and the scores: as computed, capped, with the bias, or as weights."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    kept = [query @ key.mT * factor]
    capped = kept[0] if softcap == 0.0 else softcap * torch.tanh(kept[0] / softcap)
    biased = capped if bias is None else capped + bias
    weights = torch.nan_to_num(torch.softmax(biased, -1), nan=0.0)
    kept += [capped, biased, weights]
    return weights @ value, kept[mode]


@op("RotaryEmbedding")
def rotary_embedding(
    x: Tensor,
    cosines: Tensor,
    sines: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: Int = 0,
    num_heads: Int = 0,
    rotary_embedding_dim: Int = 0,
) -> Tensor:
    """Rotate pairs of features by angles of their positions; [B, H, T, E] or [B, T, H*E]."""
    shape = x.shape
    if x.dim() == 3:
        x = _heads(x, num_heads)
    width = rotary_embedding_dim or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if positions is not None:
        cosines, sines = cosines[positions], sines[positions]
    cosines, sines = cosines.unsqueeze(1)[..., : width // 2], sines.unsqueeze(1)[..., : width // 2]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned.chunk(2, -1)
    real, imaginary = cosines * first - sines * second, sines * first + cosines * second
    pairs = [real, imaginary]
    both = torch.stack(pairs, -1).flatten(-2) if interleaved else torch.cat(pairs, -1)
    made = torch.cat([both, rest], -1)
    return made.transpose(1, 2).reshape(shape) if len(shape) == 3 else made

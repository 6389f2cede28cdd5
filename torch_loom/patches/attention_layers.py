"""Attention inside the function of attention layers."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch.nn import functional

from torch_loom.patches.declared import declared


@declared("torch.nn.functional:multi_head_attention_forward")
def with_attention(attention: Callable[..., Any]) -> Callable[..., Any]:
    """A function mode sees the call of an attention layer's function, and nothing of what it calls, so that
    the same code runs with another attention in it. PyTorch's own function stays as it is.

    Args:
        attention: what the layer calls for ``scaled_dot_product_attention``.
    """
    function: Any = functional.multi_head_attention_forward
    names = {**function.__globals__, "scaled_dot_product_attention": attention}
    made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made

"""How compiled programs compute ``flex_attention``: as in eager mode, by products and a softmax."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode


def decompose(name: str) -> None:
    """Let functionalisation take ``flex_attention`` of the device's tensors apart.

    Inductor has two templates for it: Triton's, and one in C++ that asks for the type cpu and computes no
    gradients. Every other device ends in an import of Triton. The scores are materialised, as in eager mode.
    """
    # Its package has a function of this name, too.
    flex: Any = import_module("torch._higher_order_ops.flex_attention")
    _decompose(flex.flex_attention, flex.sdpa_dense, name)
    _decompose(flex.flex_attention_backward, flex.sdpa_dense_backward, name)


def _decompose(op: Any, dense: Any, name: str) -> None:
    # What has become functional is traced; the parts copy into tensors that they make.
    original = op.python_key_table[FunctionalTensorMode]
    if getattr(original, "_loom_original", None) is not None:
        return

    def functional(mode: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if query.device.type != name:
            return original(mode, query, *args, **kwargs)
        with mode:
            return dense(query, *args, **kwargs)

    functional._loom_original = original  # type: ignore[attr-defined]
    op.python_key_table[FunctionalTensorMode] = functional
    op._dispatch_cache.clear()

"""The layers that eager mode runs as one op: ``nn.TransformerEncoderLayer`` in ``eval()``, without gradients.

An export watches the functions of torch that a module calls, and PyTorch's layers take their way to the op
only while they are not watched. Where eager would take it for the module that is compiled, the layer is
exported unwatched: the graph has the op, and with it eager's bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def layers_of(module: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that would run as one op now, if their other conditions hold, by their names."""
    if not torch.backends.mha.get_fastpath_enabled():
        return {}
    return {name: each for name, each in module.named_modules() if _may_take_it(each)}


def _may_take_it(module: nn.Module) -> bool:
    if type(module).forward is not nn.TransformerEncoderLayer.forward or module.training:
        return False
    return not (torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters()))


@contextmanager
def taken(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Let layers call functions of torch unwatched."""
    for layer in layers:
        layer.__dict__["forward"] = _unwatched(layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _unwatched(forward: Any) -> Any:
    def unwatched(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return forward(*args, **kwargs)

    return unwatched

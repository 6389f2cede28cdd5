"""``torch.compile`` through a TTDevice's compiler, under PyBuda's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torch_loom.compiler.backend import loom_backend


def compile_torch(
    module: fx.GraphModule,
    aten_sample_inputs: Sequence[torch.Tensor],
    **options: Any,
) -> Callable[..., Any]:
    """The backend for ``torch.compile(model, backend=compile_torch)``: the compiler of TTDevices."""
    return loom_backend(module, aten_sample_inputs, **options)


def reset_state() -> None:
    """Forget what ``torch.compile`` compiled."""
    torch._dynamo.reset()

"""Outputs of a model's layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torch_loom.errors import OperandError

_Visit = Callable[[str, Tensor], None]


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that have no modules in them, by path; a model without any is its own, as ``""``."""
    # Attention projects with its parts' weights without calling them.
    whole = [path for path, part in model.named_modules() if isinstance(part, nn.MultiheadAttention)]

    def is_layer(path: str, part: nn.Module) -> bool:
        if any(path.startswith(f"{outer}.") if outer else path for outer in whole):
            return False
        return path in whole or not any(part.children())

    return {path: part for path, part in model.named_modules() if is_layer(path, part)}


def first_tensor(output: Any) -> Tensor | None:
    """Return the first floating-point tensor of what a module returned: a tensor, a sequence or a mapping."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() else None
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple):
        for each in output:
            found = first_tensor(each)
            if found is not None:
                return found
    return None


@contextmanager
def observed(model: nn.Module, visit: _Visit) -> Iterator[None]:
    """Calls ``visit(path, output)`` whenever a layer has run, in their order."""
    hooks = []
    for path, part in layers_of(model).items():

        def tell(module: nn.Module, args: Any, output: Any, path: str = path) -> None:
            tensor = first_tensor(output)
            if tensor is not None:
                # What looks at the model is no part of it: it must not be emulated.
                with torch._C.DisableTorchFunction():
                    visit(path, tensor.detach())

        hooks.append(part.register_forward_hook(tell))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def run(model: nn.Module, inputs: Any) -> Tensor:
    """Return the first tensor that a model makes of its inputs: one tensor, a tuple of them, or a mapping."""
    with torch.no_grad():
        if isinstance(inputs, Mapping):
            output = model(**inputs)
        elif isinstance(inputs, list | tuple):
            output = model(*inputs)
        else:
            output = model(inputs)
    found = first_tensor(output)
    if found is None:
        raise OperandError(
            f"the model returned {type(output).__name__}, in which there is no floating-point tensor"
        )
    return found

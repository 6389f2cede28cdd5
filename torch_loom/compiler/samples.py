"""What a model is compiled for: sample tensors, brought to one device, and constants."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from torch_loom.compiler.frontend import state_of
from torch_loom.errors import CompilerOptionError
from torch_loom.image.arguments import CONSTANTS, names_of, same
from torch_loom.image.program import encode


def on_one_device(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return samples where the module is, so that a batch on the CPU compiles a module on the device.

    Args:
        device: where the executable runs; samples of a module without parameters that are in several places
            are moved there.

    Raises:
        CompilerOptionError: a sample is neither a tensor nor a number, a bool, a text or None; or the module
            has no values, being on the ``meta`` device.
    """
    for path, leaf in pytree.tree_leaves_with_path((args, kwargs)):
        if not isinstance(leaf, (torch.Tensor, *CONSTANTS)):
            raise CompilerOptionError(f"{_place(path)} is a {_kind(leaf)}; {_expected(leaf)}")
    state = list(state_of(module).values()) if isinstance(module, nn.Module) else []
    homes = {tensor.device for tensor in state}
    if any(home.type == "meta" for home in homes):
        raise CompilerOptionError(
            "the module is on the meta device, so its parameters have no values. Give it memory first, "
            f'module.to_empty(device="{device}"), and load its state'
        )
    args, kwargs = _each_its_own(args, kwargs)
    if len(homes) > 1:
        return args, kwargs  # a model in several places says itself where its inputs belong
    if not homes:
        leaves = pytree.tree_leaves((args, kwargs))
        homes = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
    home = homes.pop() if len(homes) == 1 else device
    home = device if home.type == "meta" else home

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.device == home:
            return leaf
        # Shapes are compiled for, not values, and a sample on the meta device has none.
        return torch.zeros_like(leaf, device=home) if leaf.device.type == "meta" else leaf.to(home)

    own_args, own_kwargs = pytree.tree_map(moved, (args, kwargs))
    return own_args, own_kwargs


def _each_its_own(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    # torch.export reads a tensor that is given twice from one of its places for ever (docs/upstream.md).
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        is_repeated = id(leaf) in seen
        seen.add(id(leaf))
        return leaf.detach().clone().requires_grad_(leaf.requires_grad) if is_repeated else leaf

    own_args, own_kwargs = pytree.tree_map(own, (args, kwargs))
    return own_args, own_kwargs


def specs_of(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what an executable knows of its arguments, as JSON has it.

    ``given``: which leaves are tensors; ``constants``: the others; ``names``: where each leaf stands;
    ``keywords``: the order of the keyword arguments; ``optional``: whether the constants are defaults of
    the forward, so that a call may leave them out.
    """
    leaves = pytree.tree_leaves((args, kwargs))
    constants = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    return {
        "given": [isinstance(leaf, torch.Tensor) for leaf in leaves],
        "constants": [encode(constant, lambda _: None) for constant in constants],
        "keywords": list(kwargs),
        "names": list(names_of(args, kwargs)),
        "optional": bool(constants) and _are_defaults(module, args, kwargs),
    }


def _are_defaults(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        signature = inspect.signature(module.forward)
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return False
    return all(
        same(value, signature.parameters[name].default)
        for name, value in given.items()
        if not all(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
    )


def _place(path: Any) -> str:
    keys = [getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))) for key in path]
    return f"{('sample_inputs', 'sample_kwargs')[keys[0]]}{''.join(f'[{key!r}]' for key in keys[1:])}"


def _kind(leaf: Any) -> str:
    kind = type(leaf)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _expected(leaf: Any) -> str:
    if hasattr(leaf, "__array__"):
        return "give a tensor, such as torch.from_numpy(x) or torch.as_tensor(x)"
    return "expected tensors, and numbers, bools, texts or None, which become constants"

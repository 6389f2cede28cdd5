"""Activation checkpoints compute again under the mode that their forward ran in.

By itself the second run would compute in float32, and gradients would be those of other activations,
silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from torch_loom.patches import checkpoints

Function = Callable[..., Any]
_kinds: list[type] = []


def innermost(kind: type) -> Any:
    """Return the innermost mode of a kind that runs in this thread, or None."""
    modes: list[Any] = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]  # type: ignore[no-untyped-call]
    return next((mode for mode in reversed(modes) if isinstance(mode, kind)), None)


def _recomputed(function: Function) -> Function:
    """`function`, in the modes that run here whenever it is called."""
    for kind in _kinds:
        mode = innermost(kind)
        if mode is not None:
            function = mode.recomputed(function)
    return function


def recompute_under(kind: type) -> None:
    """Make checkpoints compute again under the modes of a kind that their forward ran in.

    Args:
        kind: has a method ``recomputed(function)``, which returns the function that runs in the mode.
    """
    if kind not in _kinds:
        _kinds.append(kind)
    checkpoints.recomputed.apply(_recomputed)
    checkpoints.recomputed_reentrant.apply(_recomputed)

"""What activation checkpoints compute again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch_loom.patches.declared import Place, patch

Function = Callable[..., Any]
_ISSUES = "pytorch/pytorch#147995, pytorch/pytorch#84864"
_HEADING = "Activation checkpoints"


@patch("torch.utils.checkpoint:_checkpoint_without_reentrant_generator", issue=_ISSUES, shown_under=_HEADING)
def recomputed(place: Place, again: Callable[[Function], Function]) -> Any:
    """A checkpoint restores autocast, random state and the default device for its second run, and no other
    function mode. It has no extension point that does not ask each call for a context.

    Args:
        again: makes of a function the one that may be called twice.
    """
    start = place.original

    @functools.wraps(start)
    def start_recomputed(function: Function, *args: Any, **kwargs: Any) -> Any:
        return start(again(function), *args, **kwargs)

    return start_recomputed


@patch("torch.utils.checkpoint:CheckpointFunction.forward", issue=_ISSUES, shown_under=_HEADING)
def recomputed_reentrant(place: Place, again: Callable[[Function], Function]) -> Any:
    """The same, for checkpoints with `use_reentrant=True`.

    Args:
        again: makes of a function the one that may be called twice.
    """
    forward = place.original

    @functools.wraps(forward)
    def forward_recomputed(ctx: Any, function: Function, *args: Any) -> Any:
        return forward(ctx, again(function), *args)

    return forward_recomputed

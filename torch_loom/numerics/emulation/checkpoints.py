"""Activation checkpoints compute again under the emulation that their forward ran in.

``torch.utils.checkpoint`` restores autocast, random state and the default device for its second run, and no
other function mode (pytorch/pytorch#147995, #84864). It would compute in float32, and gradients would be
those of other activations, silently. It has no extension point that does not ask each call for a context, so
the two functions that it calls are replaced here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint as checkpoints
from torch.overrides import _get_current_function_mode_stack

Function = Callable[..., Any]


def _recomputed(function: Function, kind: type) -> Function:
    """`function`, in the innermost emulation that runs here whenever it is called."""
    modes: Any = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    emulation: Any = next((mode for mode in reversed(modes) if isinstance(mode, kind)), None)
    if emulation is None:
        return function
    place = emulation.places.here
    paths, names = list(place.paths), place.names

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with emulation:
            place = emulation.places.here  # this thread's: backward may run in another
            kept = place.names
            place.paths, place.names = list(paths), names
            try:
                return function(*args, **kwargs)
            finally:
                place.names = kept

    return run


@functools.cache
def recompute_under(kind: type) -> None:
    """Make checkpoints compute again under the emulations, objects of `kind`, that their forward ran in."""
    start: Function = checkpoints._checkpoint_without_reentrant_generator
    forward: Function = checkpoints.CheckpointFunction.forward

    @functools.wraps(start)
    def start_emulated(function: Function, *args: Any, **kwargs: Any) -> Any:
        return start(_recomputed(function, kind), *args, **kwargs)

    @functools.wraps(forward)
    def forward_emulated(ctx: Any, function: Function, *args: Any) -> Any:
        return forward(ctx, _recomputed(function, kind), *args)

    checkpoints._checkpoint_without_reentrant_generator = start_emulated  # type: ignore[assignment]
    checkpoints.CheckpointFunction.forward = staticmethod(forward_emulated)  # type: ignore[method-assign]

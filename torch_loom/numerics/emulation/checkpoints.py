"""Activation checkpoints compute again under the emulation that their forward ran in.

By itself the second run would compute in float32, and gradients would be those of other activations,
silently.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.overrides import _get_current_function_mode_stack

from torch_loom.patches import checkpoints

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


def recompute_under(kind: type) -> None:
    """Make checkpoints compute again under the emulations, objects of `kind`, that their forward ran in."""
    again = functools.partial(_recomputed, kind=kind)
    checkpoints.recomputed.apply(again)
    checkpoints.recomputed_reentrant.apply(again)

"""Calls of TorchScript."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch_loom.patches.declared import Place, patch


@patch("torch._C:ScriptFunction.__call__", "torch._C:ScriptMethod.__call__")
def called(place: Place, check: Callable[[Any], None]) -> Any:
    """TorchScript calls kernels past function modes, which do not see the call: under emulated
    formats its products would silently be float32's.

    Args:
        check: is called with each function or method before it runs; what it raises takes its place.
    """
    call = place.original

    @functools.wraps(call)
    def call_checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self)
        return call(self, *args, **kwargs)

    return call_checked

"""Calls of TorchScript under a mode that does not see what they compute."""

from __future__ import annotations

from typing import Any

from torch.overrides import _get_current_function_mode_stack

from torch_loom.patches import scripts


def _check(script: Any) -> None:
    modes: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    for mode in reversed(modes):
        check = getattr(mode, "check_script", None)
        if check is not None:
            check(script)


def check_scripts() -> None:
    """Hand each function and method of TorchScript that is called to the function modes that run.

    Those with a method ``check_script(script)`` may refuse it.
    """
    scripts.called.apply(_check)

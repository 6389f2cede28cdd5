"""The stream sanitizer: reports commands on different streams that use the same memory, not ordered."""

from __future__ import annotations

from torch_loom import _C, config, late
from torch_loom.device._core.first_use import at_first_use

cuda_names = late.lazily("torch_loom.device.sanitizer.cuda_names")

__all__ = ["disable", "enable", "is_enabled"]


def enable() -> None:
    """Report races between streams from now on, in every thread.

    The launch of a command that races with an earlier command prints both, with the Python stacks that issued
    them, to stderr and raises ``torch.loom._sanitizer.CUDASanitizerErrors``; the command is not submitted.
    The program can go on. What was submitted before is not known: enable it first, or with
    ``TORCH_LOOM_SANITIZER=1``. Does nothing when it is enabled; initialises no device.

    Example:
        >>> import torch
        >>> torch.loom.sanitizer.enable()
        >>> side, x = torch.Stream("loom"), torch.zeros(8, device="loom")
        >>> with side:
        ...     side.wait_stream(torch.loom.default_stream())  # without it: x + 1 races with the zeros
        ...     y = x + 1
        >>> torch.loom.sanitizer.disable()
    """
    cuda_names.cuda_sanitizer.enable()


def disable() -> None:
    """Report no races any more, and forget what was learned. Does nothing when it is disabled."""
    cuda_names.cuda_sanitizer.disable()


def is_enabled() -> bool:
    """Return whether races are reported."""
    return bool(cuda_names.cuda_sanitizer.enabled)


def _enable_if_set(settings: config.Settings) -> None:
    if settings.sanitizer:
        enable()
        _C.watch_kernels()


at_first_use(_enable_if_set)

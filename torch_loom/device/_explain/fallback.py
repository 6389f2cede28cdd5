"""Fallbacks: what the chip does not do itself runs all the same; here it is counted, reported or refused."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torch_loom import _C, config
from torch_loom.device._core.log import logger
from torch_loom.errors import DummyDeviceError, FallbackError

__all__ = ["Fallback", "FallbackWarning", "fallback_stats", "reset_fallback_stats"]

_OWN_FOLDER = str(Path(__file__).parents[1]) + os.sep
_policy = "allow"
_is_dummy = False


class FallbackWarning(UserWarning):
    """An op or dtype that the chip does not do itself, under ``TORCH_LOOM_FALLBACK=warn``."""


class Fallback(NamedTuple):
    """What was not native.

    Attributes:
        op: the op's name, ``"aten::exp"``; overloads count together.
        dtype: the dtype that the chip does not compute in; None if the op itself is not native.
    """

    op: str
    dtype: torch.dtype | None


def fallback_stats() -> dict[Fallback, int]:
    """Return how often each op ran although the chip does not do it itself, on all devices together.

    An op counts when it is issued: on any stream and thread, in a backward pass, once in a graph's capture
    and not at its replays. Composite ops count as those that reach the device. Beside floating-point
    operands, integers and booleans are indices and masks and do not count as dtypes. Copies, views and fills
    are native.

    Example:
        >>> torch.loom.fallback_stats()  # doctest: +SKIP
        {Fallback(op='aten::exp', dtype=None): 3, Fallback(op='aten::mul', dtype=torch.float32): 1}
    """
    counts = sorted(_C.fallback_counts().items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
    return {
        Fallback(op, None if dtype is None else getattr(torch, dtype)): count for (op, dtype), count in counts
    }


def reset_fallback_stats() -> None:
    """Set the counts of :func:`fallback_stats` to nothing; what was logged or warned of once is so again."""
    _C.reset_fallback_counts()


def configure(settings: config.Settings) -> None:
    """Take what the settings say of fallbacks."""
    global _policy, _is_dummy
    _policy, _is_dummy = settings.fallback, settings.is_dummy


def _tell(op: str, dtype: str | None, operands: Sequence[str], device: int) -> None:
    """Log, warn of or refuse a fallback, in the thread that issues the op; the core calls it."""
    if _is_dummy:
        raise DummyDeviceError(config.rbln.refusal(op))
    chip = _C.chip(device)
    where = config.device_name().upper()
    reason = "" if dtype is None else f": {dtype} is not a dtype of the chip '{chip.name}'"
    if _policy == "error":
        allowed = f"The dtypes of this chip are: {', '.join(chip.dtypes)}."
        if dtype is None:
            ops = ", ".join(sorted(chip.native_ops or ()))
            allowed = f"Its ops are: {ops}; docs/supported_ops.md says more."
        where_on = f" (here on {', '.join(operands)})" if operands else ""
        what = f"the op{where_on} is not native" if dtype is None else f"the dtype {dtype} is not native"
        raise FallbackError(
            f"{op}: {what} to the chip '{chip.name}' of {where} devices, and TORCH_LOOM_FALLBACK=error "
            f"refuses it. {allowed} With TORCH_LOOM_FALLBACK=allow it runs."
        )
    message = f"`{op}` op ran on CPU instead of {where}{reason}"
    if _policy == "warn":
        warnings.warn(message, FallbackWarning, stacklevel=2)
    elif logger.isEnabledFor(logging.INFO):
        logger.info("%s\n%s", message, "".join(traceback.format_list(_stack())).rstrip())


def _stack() -> traceback.StackSummary:
    """Return the Python stack of the caller, innermost last, without the files of the device's module."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDER):
        frame = frame.f_back
    return traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()


_C.set_fallback_notifier(_tell)

"""Automatic mixed precision: ``torch.amp`` with these devices filled in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.devices import is_available

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def amp_definitely_not_available() -> bool:
    """Return whether there is no device to cast for. Initialises no device."""
    return not is_available()


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801 (the name in torch.cuda.amp)
    """``torch.autocast`` for these devices.

    Args:
        enabled: whether to cast at all.
        dtype: float16 or bfloat16.
        cache_enabled: whether to keep the casts of weights.
    """

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__(DEVICE_TYPE, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler`` for these devices; arguments as there."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            DEVICE_TYPE,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """``torch.amp.custom_fwd`` for these devices."""
    return functools.partial(torch.amp.custom_fwd, device_type=DEVICE_TYPE)(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """``torch.amp.custom_bwd`` for these devices."""
    return torch.amp.custom_bwd(bwd, device_type=DEVICE_TYPE)

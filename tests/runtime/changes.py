"""What actions share: their table, and changes of a tensor next to those of its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .executor import NUMPY, Executor, Handle

ACTIONS: dict[str, Callable[..., None]] = {}
CHANGES = ("fill_", "add_", "mul_", "copy_", "add_tensor")


def action(function: Callable[..., None]) -> Callable[..., None]:
    """Let a step of the function's name mean the function."""
    ACTIONS[function.__name__] = function
    return function


def change_model(kind: str, array: np.ndarray[Any, Any], value: Any) -> None:
    """Do to the model what `change` does to a tensor."""
    operand = value.array if isinstance(value, Handle) else array.dtype.type(value)
    with np.errstate(over="ignore"):
        if kind in ("fill_", "copy_"):
            array[...] = operand
        elif kind == "mul_":
            array *= operand
        else:
            array += operand


def change(kind: str, tensor: torch.Tensor, value: Any) -> None:
    """Change a tensor in place."""
    if kind == "copy_":
        tensor.copy_(value.tensor)
    elif kind == "add_tensor":
        tensor.add_(value.tensor)
    else:
        getattr(tensor, kind)(value)


def operand_for(run: Executor, kind: str, handle: Handle, index: int, value: int) -> Any:
    """Return a number, or another tensor on the same device that fits; None if there is none."""
    if kind not in ("copy_", "add_tensor"):
        return value % 100
    found = [
        each
        for each in run.handles
        if each.tensor.dtype == handle.tensor.dtype
        and each.tensor.shape == handle.tensor.shape
        and each.storage.device == handle.storage.device
        and each.storage is not handle.storage
    ]
    return found[index % len(found)] if found else None


def pattern(count: int, dtype: torch.dtype, value: int) -> np.ndarray[Any, Any]:
    """Return contents whose elements differ."""
    return np.resize(((np.arange(101) + value) % 101).astype(NUMPY[dtype]), count)

"""What the readers of sets share: results of sections, arrays as tensors of bits, errors as notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Result:
    """How many results of a section are exact; a note says why none could be computed."""

    section: str
    exact: int
    total: int
    note: str = ""


def bits(array: Array) -> Tensor:
    """An array's bits as int32."""
    return torch.from_numpy(np.ascontiguousarray(array).astype(np.uint32).view(np.int32))


def from_bits(tensor: Tensor) -> Array:
    """The unsigned bits of an int32 tensor."""
    return tensor.contiguous().numpy().view(np.uint32)


def compared(section: str, wanted: Array, compute: Callable[[], Array]) -> Result:
    """The result of a section; whatever goes wrong in it is a note, not an end."""
    wanted = wanted.astype(np.uint32).reshape(-1)
    try:
        found = compute().astype(np.uint32).reshape(-1)
    except Exception as error:  # a section without a rule must not hide the others
        return Result(section, 0, wanted.size, f"{type(error).__name__}: {error}".splitlines()[0][:120])
    if found.size != wanted.size:
        return Result(section, 0, wanted.size, f"{found.size} results instead of {wanted.size}")
    return Result(section, int((found == wanted).sum()), wanted.size)


def joined(parts: list[Array]) -> Array:
    """Results of cases, one after another."""
    return np.concatenate([part.reshape(-1) for part in parts]) if parts else np.zeros(0, np.uint32)

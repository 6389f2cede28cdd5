"""Host memory that devices copy to and from without a stop in between."""

from __future__ import annotations

import contextlib
import mmap
import operator
import sys
import weakref

import torch

from torch_loom.device._core.first_use import _device_count, _is_in_bad_fork
from torch_loom.device.memory import pinning

_HUGE_PAGE = 2 << 20


def huge_host_empty(nbytes: int) -> torch.Tensor:
    """Return host memory from and to which devices copy asynchronously: pinned, and at a multiple of 2 MiB.

    It is touched here, so that the first copy meets no page fault, and in huge pages where the system gives
    them. It goes back when the last tensor over it is gone.

    Args:
        nbytes: how many bytes, 1 … ``sys.maxsize``.

    Returns:
        A tensor of uint8 on the CPU of shape ``(nbytes,)``, all zeros.

    Raises:
        TypeError: ``nbytes`` is no whole number.
        ValueError: ``nbytes`` is out of range.
        MemoryError: the system has no such memory.
    """
    size = operator.index(nbytes)
    if not 0 < size <= sys.maxsize:
        raise ValueError(f"nbytes must be 1 … {sys.maxsize}, but got {size}")
    try:
        memory = mmap.mmap(-1, size + _HUGE_PAGE)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"huge_host_empty({size}): the system gives no such memory ({error})") from None
    with contextlib.suppress(OSError, AttributeError):  # without huge pages it is at the same address
        memory.madvise(mmap.MADV_HUGEPAGE)
    start = torch.frombuffer(memory, dtype=torch.uint8, count=1).data_ptr()
    tensor = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=-start % _HUGE_PAGE)
    tensor.zero_()
    if _device_count() and not _is_in_bad_fork():
        pinning.pin_memory(tensor.data_ptr(), size)
        weakref.finalize(memory, _unpin, tensor.data_ptr()).atexit = False
    return tensor


def _unpin(address: int) -> None:
    # A child that was forked has the memory, and not the devices.
    if not _is_in_bad_fork():
        pinning.unpin_memory(address)

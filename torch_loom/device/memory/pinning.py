"""Pinning memory that the program has already, with the names of ``torch.cuda._pin_memory_utils``."""

from __future__ import annotations

from torch_loom import _C
from torch_loom.device._core.first_use import _lazy_init
from torch_loom.errors import PinnedMemoryError


def pin_memory(data_ptr: int, size: int) -> None:
    """Pin host memory: copies between it and a device run beside the host, and ``is_pinned()`` is true.

    The caller still owns it, and must keep it until :func:`unpin_memory`.

    Args:
        data_ptr: its address.
        size: bytes.

    Raises:
        TypeError: an argument is no int.
        PinnedMemoryError: there are no such bytes, or some of them are pinned or device memory already.
    """
    _check_address(data_ptr)
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"size must be an int, got {type(size).__name__} {size!r}")
    if not 0 < size < 2**63:
        raise PinnedMemoryError(f"size must be 1 … 2**63 - 1 bytes, got {size}")
    _lazy_init()
    try:
        _C.register_memory(data_ptr, size)
    except ValueError as error:
        raise PinnedMemoryError(f"The memory cannot be pinned: {error}") from None


def unpin_memory(data_ptr: int) -> None:
    """End what :func:`pin_memory` did, after waiting for the work of all devices.

    Raises:
        TypeError: ``data_ptr`` is no int.
        PinnedMemoryError: it is no address that :func:`pin_memory` was called with.
    """
    _check_address(data_ptr)
    _lazy_init()
    if data_ptr == 0:
        raise PinnedMemoryError("The memory cannot be unpinned: data_ptr is 0")
    try:
        _C.unregister_memory(data_ptr)
    except ValueError as error:
        raise PinnedMemoryError(f"The memory cannot be unpinned: {error}") from None


def _check_address(data_ptr: int) -> None:
    if not isinstance(data_ptr, int) or isinstance(data_ptr, bool):
        raise TypeError(f"data_ptr must be an int, got {type(data_ptr).__name__} {data_ptr!r}")
    if not 0 <= data_ptr < 2**64:
        raise PinnedMemoryError(f"data_ptr must be an address, got {data_ptr}")

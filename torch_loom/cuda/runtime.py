"""``torch._C._cudart``, the functions of the CUDA runtime library that ``torch.cuda.cudart()`` returns.

They return errors by number, as the library does, where the rest of this package raises. What PyTorch builds
on them (``torch.cuda.check_error``, ``torch.cuda.CudaError``) stays PyTorch's own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import torch

from torch_loom import _C
from torch_loom.device import memory, streams
from torch_loom.device._core.device_index import _existing_index
from torch_loom.errors import PinnedMemoryError
from torch_loom.patches.declared import CUDA_NAME

_ADDRESSES = range(1, 1 << 64)
# Errors by number: loom_cuda/error_codes.h has all.
_INVALID_VALUE = 1
_INVALID_RESOURCE_HANDLE = 400
_HOST_MEMORY_ALREADY_REGISTERED = 712
_HOST_MEMORY_NOT_REGISTERED = 713
# All flags of cudaHostRegister: portable, mapped, I/O memory, read-only. Each is what memory of the host is.
_HOST_REGISTER_FLAGS = 0x0F


class cudaError(int):  # noqa: N801 (CUDA's name)
    """The number of an error of the CUDA runtime library; ``cudaError.success`` has a name, as in PyTorch."""

    success: Final[cudaError]  # type: ignore[misc]

    @property
    def value(self) -> int:
        """The number."""
        return int(self)

    @property
    def name(self) -> str:
        """``"success"``; ``"???"`` for every other number."""
        return "success" if self == 0 else "???"

    def __repr__(self) -> str:
        return f"<{self}: {int(self)}>"

    def __str__(self) -> str:
        return f"cudaError.{self.name}"


_SUCCESS = cudaError(0)
cudaError.success = _SUCCESS  # type: ignore[misc]
cudaError.__members__ = {"success": _SUCCESS}  # type: ignore[attr-defined]


class _OwnStreams:
    """The streams that a program has created by their handles, for as long as it has not destroyed them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}

    def create(self) -> int:
        handle = streams.Stream().native_handle  # type: ignore[attr-defined]
        with self._lock:
            # Of the pool, which hands out the first again in the end.
            self._counts[handle] = self._counts.get(handle, 0) + 1
        return int(handle)

    def destroy(self, handle: int) -> bool:
        with self._lock:
            if handle not in self._counts:
                return False
            self._counts[handle] -= 1
            if not self._counts[handle]:
                del self._counts[handle]
        return True


_own_streams = _OwnStreams()


def provide(profiler_start: Callable[[], None], profiler_stop: Callable[[], None]) -> None:
    """Put the module where ``torch.cuda`` looks for it.

    Args:
        profiler_start, profiler_stop: what collecting and not collecting means to the profile that runs.
    """

    def cudaProfilerStart() -> cudaError:  # noqa: N802 (CUDA's name, as those below)
        """Let the running profile collect: see ``torch.cuda.profiler``."""
        profiler_start()
        return _SUCCESS

    def cudaProfilerStop() -> cudaError:  # noqa: N802
        """Let the running profile collect nothing of the devices."""
        profiler_stop()
        return _SUCCESS

    module: Any = ModuleType("torch._C._cudart", "The functions of libcudart.so that PyTorch binds.")
    functions = (
        *(cudaError, cudaGetErrorString, cudaMemGetInfo),
        *(cudaHostGetDevicePointer, cudaHostRegister, cudaHostUnregister),
        *(cudaProfilerStart, cudaProfilerStop, cudaStreamCreate, cudaStreamDestroy),
    )
    for function in functions:
        function.__module__ = module.__name__
        function.__qualname__ = function.__name__
        setattr(module, function.__name__, function)
    for owner in (torch._C, torch.cuda):
        CUDA_NAME.put(owner, _cudart=module)


def cudaGetErrorString(error: cudaError) -> str:  # noqa: N802
    """Return CUDA's text of an error.

    Raises:
        TypeError: it is no :class:`cudaError`.
    """
    if not isinstance(error, cudaError):
        kind = type(error).__name__
        raise TypeError(f"cudaGetErrorString(): expected a cudaError, got {kind} {error!r}")
    return _C.cuda_error_text(int(error) if abs(error) < 1 << 31 else -1)


def cudaMemGetInfo(device: int) -> tuple[int, int]:  # noqa: N802
    """Return the free and the total bytes of a device."""
    return memory.mem_get_info(_existing_index(_whole(device, "device")))


def cudaHostRegister(ptr: int, size: int, flags: int) -> cudaError:  # noqa: N802
    """Pin memory of the host that the program has already."""
    for name, value in (("ptr", ptr), ("size", size), ("flags", flags)):
        _whole(value, name)
    if ptr not in _ADDRESSES or size not in _ADDRESSES or flags & ~_HOST_REGISTER_FLAGS:
        return cudaError(_INVALID_VALUE)
    try:
        memory.pinning.pin_memory(ptr, size)
    except PinnedMemoryError:
        is_pinned = "pinned memory" in (_C.place_of(ptr), _C.place_of(ptr + size - 1))
        return cudaError(_HOST_MEMORY_ALREADY_REGISTERED if is_pinned else _INVALID_VALUE)
    return _SUCCESS


def cudaHostUnregister(ptr: int) -> cudaError:  # noqa: N802
    """End what :func:`cudaHostRegister` did, after waiting for the work of all devices."""
    if _whole(ptr, "ptr") not in _ADDRESSES:
        return cudaError(_INVALID_VALUE)
    try:
        memory.pinning.unpin_memory(ptr)
    except PinnedMemoryError:
        return cudaError(_HOST_MEMORY_NOT_REGISTERED)
    return _SUCCESS


def cudaHostGetDevicePointer(ptr: int, flags: int) -> tuple[cudaError, int]:  # noqa: N802
    """Return where devices read pinned memory of the host: at the host's address. ``flags`` must be 0."""
    is_pinned = _whole(ptr, "ptr") in _ADDRESSES and _C.place_of(ptr) == "pinned memory"
    if not is_pinned or _whole(flags, "flags"):
        return cudaError(_INVALID_VALUE), 0
    return _SUCCESS, ptr


def cudaStreamCreate(ptr: int) -> cudaError:  # noqa: N802
    """Write the handle of a stream of the current device, one of its pool, to an address of the host."""
    if _whole(ptr, "ptr") not in _ADDRESSES:
        return cudaError(_INVALID_VALUE)
    ctypes.c_void_p.from_address(ptr).value = _own_streams.create()
    return _SUCCESS


def cudaStreamDestroy(ptr: int) -> cudaError:  # noqa: N802
    """Forget a stream that :func:`cudaStreamCreate` made; what was issued to it still runs."""
    is_own = _own_streams.destroy(_whole(ptr, "ptr"))
    return _SUCCESS if is_own else cudaError(_INVALID_RESOURCE_HANDLE)


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__} {value!r}")
    return value

"""The source of device memory: the caching allocator, or functions from a shared library."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.types import Device

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE, _existing_index
from torch_loom.device._core.first_use import is_initialized
from torch_loom.errors import (
    AllocatorFunctionError,
    AllocatorLibraryError,
    AlreadyInitializedError,
    DeviceTypeError,
)

__all__ = [
    "CUDAPluggableAllocator",
    "PluggableAllocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "get_allocator_backend",
]


class _Allocator:
    """An allocator of device memory; without a handle it is the devices' own."""

    def __init__(self, handle: _C.MemorySource | None) -> None:
        self._allocator = handle

    def allocator(self) -> _C.MemorySource | None:
        """Return what ``MemPool(allocator=…)`` takes; None stands for the devices' own allocator."""
        return self._allocator


class PluggableAllocator(_Allocator):
    """Functions of a shared library that provide device memory, with the signatures of CUDA's.

    ``void* alloc(ssize_t size, int device, void* stream)`` returns what ``loom_malloc()`` of
    ``loom_memory.h`` (in :func:`torch_loom.include_path`) gave, part of it, or memory of the host
    (``malloc``), which then counts as the device's without using any of its capacity; null means out of
    memory. ``void free(void* ptr, ssize_t size, int device, void* stream)`` takes it back; it is called when
    all work that uses the memory has finished. Both may be called from any thread, with or without Python's
    lock. ``stream`` is the :attr:`Stream.native_handle` of the stream that the memory is for.

    The library stays loaded. Host memory is not fenced off by ``TORCH_LOOM_PROTECT=1``.

    Args:
        path_to_so_file: the library.
        alloc_fn_name: the name of the function that allocates.
        free_fn_name: the name of the function that frees.

    Raises:
        TypeError: an argument has the wrong type.
        AllocatorLibraryError: the library cannot be loaded.
        AllocatorFunctionError: it has no such function.
    """

    def __init__(
        self, path_to_so_file: str | os.PathLike[str], alloc_fn_name: str, free_fn_name: str
    ) -> None:
        for name, value in (("alloc_fn_name", alloc_fn_name), ("free_fn_name", free_fn_name)):
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a str, got {type(value).__name__} {value!r}")
        path = os.fspath(path_to_so_file)
        if not isinstance(path, str):
            raise TypeError(f"path_to_so_file must be a str or a path, got {path!r}")
        # The library finds loom_malloc() and its like in the extension.
        ctypes.CDLL(_C.__file__, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise AllocatorLibraryError(f"path_to_so_file={path!r} cannot be loaded: {error}") from error
        super().__init__(_C.MemorySource(_function(library, alloc_fn_name), _function(library, free_fn_name)))


CUDAPluggableAllocator = PluggableAllocator


def _function(library: ctypes.CDLL, name: str) -> int:
    try:
        function = getattr(library, name)
    except AttributeError as error:
        raise AllocatorFunctionError(
            f'{library._name!r} has no function {name!r}: declare it as extern "C", so that it keeps its name'
        ) from error
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, "a symbol that was found has an address"
    return address


_current = _Allocator(None)


def change_current_allocator(allocator: _Allocator) -> None:
    """Let all device memory come from another allocator. Possible before the devices are first used only.

    A pluggable allocator is asked for each tensor, and its memory goes back with it: nothing is cached.
    Within :func:`use_mem_pool` and graph captures, it provides the segments of the pools. Unlike with CUDA
    the statistics, snapshots, ``record_stream`` and graphs work as with the devices' own allocator.

    Args:
        allocator: a :class:`PluggableAllocator`, or what :func:`_get_current_allocator` returned.

    Raises:
        TypeError: it is neither.
        AlreadyInitializedError: the devices have been used in this process.
    """
    global _current
    if not isinstance(allocator, _Allocator):
        raise TypeError(
            f"allocator must be a PluggableAllocator, got {type(allocator).__name__} {allocator!r}"
        )
    if is_initialized():
        raise AlreadyInitializedError(
            "Can't swap an already initialized allocator: the devices have been used. Call "
            "change_current_allocator() before the first tensor is made, or let some of the memory come from "
            "another allocator: MemPool(allocator=...) and use_mem_pool()"
        )
    _C.set_memory_source(allocator.allocator())
    _current = allocator


def _get_current_allocator() -> _Allocator:
    """Return the allocator that device memory comes from."""
    return _current


def get_allocator_backend() -> str:
    """Return the source of device memory: ``"native"``, or ``"pluggable"`` functions of the program."""
    return "pluggable" if _C.has_memory_source() else "native"


def caching_allocator_enable(value: bool = True) -> None:
    """Say whether freed memory is kept for later allocations, as it is at the start. For all threads.

    If not, each allocation is taken from the device and goes back when it is freed, as soon as the work that
    uses it has finished. Private pools and pluggable allocators are not concerned.

    Raises:
        TypeError: ``value`` is no bool.
    """
    if not isinstance(value, bool):
        raise TypeError(f"value must be a bool, got {type(value).__name__} {value!r}")
    _C.set_caching(value)


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Keep no freed memory within a ``with`` block: see :func:`caching_allocator_enable`."""
    was_enabled = _C.caching()
    _C.set_caching(False)
    try:
        yield
    finally:
        _C.set_caching(was_enabled)


@contextmanager
def _free_mutex() -> Iterator[None]:
    """Let no other thread give memory back to a device within a ``with`` block; they wait for its end."""
    _C.lock_free_mutex()
    try:
        yield
    finally:
        _C.unlock_free_mutex()


def _host_allocator() -> int:
    """Return the address of the allocator of pinned memory, for ``torch.UntypedStorage(allocator=…)``.

    Raises:
        NoDeviceError: there are no devices.
    """
    return _C.host_allocator()


def caching_allocator_alloc(
    size: int, device: Device = None, stream: torch.Stream | int | None = None
) -> int:
    """Allocate device memory for another library; :func:`caching_allocator_delete` frees it.

    Args:
        size: bytes.
        device: which one; the current one if None.
        stream: the stream that uses it, its id, or its native handle; the current stream if None.

    Returns:
        The address, 0 for 0 bytes.

    Raises:
        TypeError: ``size`` is no int, or ``stream`` neither stream nor id.
        ValueError: ``size`` is negative, or there is no such stream.
        DeviceTypeError: ``stream`` is another device's.
        InvalidDeviceError: there is no such device.
        torch.OutOfMemoryError: there is not as much memory.
    """
    index = _existing_index(device)
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"size must be an int, got {type(size).__name__} {size!r}")
    if not 0 <= size < 2**63:
        raise ValueError(f"size must be 0 … 2**63 - 1 bytes, got {size}")
    if stream is None:
        stream = torch.accelerator.current_stream(index)
    if isinstance(stream, torch.Stream):
        if stream.device != torch.device(DEVICE_TYPE, index):
            raise DeviceTypeError(f"stream must be one of {DEVICE_TYPE}:{index}, got one of {stream.device}")
        stream = stream.stream_id
    if not isinstance(stream, int):
        raise TypeError(f"stream must be a Stream or the id of one, got {type(stream).__name__} {stream!r}")
    if not 0 <= stream < 2**64:
        raise ValueError(f"stream must be the id of a stream, or its native handle, got {stream}")
    return _C.raw_alloc(size, index, _stream_id(stream, index))


def _stream_id(stream: int, index: int) -> int:
    # Ids are small; CUDA's programs pass `stream.cuda_stream`, which is an address here, too.
    found = _C.find_stream(stream) if stream > 0 else None
    if found is None:
        if stream >= 2**63:
            raise ValueError(f"device {index} has no stream with id {stream}")
        return stream
    if found[1] != index:
        raise DeviceTypeError(
            f"stream must be one of {DEVICE_TYPE}:{index}, got one of {DEVICE_TYPE}:{found[1]}"
        )
    return found[0]


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what :func:`caching_allocator_alloc` returned; 0 is allowed and does nothing.

    Raises:
        TypeError: ``mem_ptr`` is no int.
        RuntimeError: it is no address, or not that of a live allocation of
            :func:`caching_allocator_alloc`; the memory of a tensor is none.
    """
    if not isinstance(mem_ptr, int) or isinstance(mem_ptr, bool):
        raise TypeError(f"mem_ptr must be an int, got {type(mem_ptr).__name__} {mem_ptr!r}")
    if not 0 <= mem_ptr < 2**64:
        raise RuntimeError(f"invalid device pointer: mem_ptr must be an address, got {mem_ptr}")
    _C.raw_delete(mem_ptr)

"""Private pools: memory that serves only allocations made to them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from torch.types import Device

from torch_loom import _C
from torch_loom.device._core.device_index import _existing_index
from torch_loom.device._core.first_use import _is_in_bad_fork, _lazy_init
from torch_loom.device.memory.allocators import _Allocator
from torch_loom.device.memory.history import memory_snapshot

__all__ = [
    "MemPool",
    "use_mem_pool",
]


class MemPool:
    """A private pool of the current device: what is allocated in it is reused only by it.

    Its memory goes back to the device when nothing uses the pool any more: neither this object, nor a
    :func:`use_mem_pool`, nor a tensor.

    Args:
        allocator: where the pool's memory comes from: a :class:`PluggableAllocator` or what its
            ``allocator()`` returned; from where other memory comes if None.
        use_on_oom: free blocks of the pool serve other allocations before those fail.
        no_split: a block is a whole segment.

    Raises:
        TypeError: ``allocator`` is none of these, or a flag is not a bool.
    """

    def __init__(
        self,
        allocator: _Allocator | _C.MemorySource | None = None,
        use_on_oom: bool = False,
        no_split: bool = False,
    ) -> None:
        source = allocator.allocator() if isinstance(allocator, _Allocator) else allocator
        if source is not None and not isinstance(source, _C.MemorySource):
            raise TypeError(f"allocator must be a PluggableAllocator or None, got {allocator!r}")
        for name, value in (("use_on_oom", use_on_oom), ("no_split", no_split)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be a bool, got {type(value).__name__} {value!r}")
        self._index = _existing_index(None)
        self._id: tuple[int, int] = _C.new_pool_id(user_created=True)
        self._source = source
        _C.use_pool(self._index, self._id, use_on_oom, no_split, source)
        # Not __del__: when the interpreter ends it may run after the modules that it needs are gone.
        weakref.finalize(self, _give_back, self._index, self._id, _C.world()).atexit = False

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a MemPool names memory of this process: it cannot be copied or pickled")

    @property
    def id(self) -> tuple[int, int]:
        """The pool's id, as graphs take it."""
        return self._id

    @property
    def allocator(self) -> _C.MemorySource | None:
        """Where the pool's memory comes from; None: from where other memory comes."""
        return self._source

    @property
    def device(self) -> int:
        """The index of the device whose memory it is."""
        return self._index

    def use_count(self) -> int:
        """Return how many use the pool: this object, and each :func:`use_mem_pool` and graph."""
        return _C.pool_use_count(self._index, self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the pool's segments, as :func:`memory_snapshot` does."""
        return memory_snapshot(self._id, include_traces=include_traces)


def _give_back(index: int, pool_id: tuple[int, int], world: int) -> None:
    if _is_in_bad_fork() or _C.world() != world:
        return  # the dry run that it was made in has ended, with its memory
    _C.release_pool(index, pool_id)
    _C.empty_cache(index, pool_id)


@contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Let the allocations of this thread come from ``pool`` within a ``with`` block.

    Threads started within, such as autograd's, allocate as usual.

    Args:
        pool: the pool.
        device: on which device; the current one if None.

    Raises:
        TypeError: ``pool`` is no MemPool.
        RuntimeError: a ``with`` block uses the pool already.
        InvalidDeviceError: there is no such device.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"pool must be a MemPool, got {type(pool).__name__} {pool!r}")
    _lazy_init()
    index = _existing_index(device)
    _C.begin_allocate_to_pool(index, pool.id, pool.allocator)
    try:
        yield
    finally:
        _C.end_allocate_to_pool(index, pool.id)
        _C.release_pool(index, pool.id)

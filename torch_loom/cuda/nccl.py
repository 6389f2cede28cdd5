"""The backend ``nccl`` under CUDA's name: the communicator of :mod:`torch_loom.distributed`.

A CPU build of PyTorch has no ``ProcessGroupNCCL`` and refuses the name; what stands for it here has its
options and the methods that PyTorch's Python calls.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from torch_loom import _C, torch_version
from torch_loom.errors import ConfigurationError
from torch_loom.patches.declared import CUDA_NAME

NAME = "nccl"
# PyTorch's own for NCCL.
_TIMEOUT = timedelta(minutes=10)


def provide() -> None:
    """Put it where PyTorch looks for it, if this build has collectives. NCCL, if it has that, gives way."""
    if not torch.distributed.is_available():
        return
    c10d: Any = torch.distributed.distributed_c10d
    group = _with_methods(_C.Communicator)
    CUDA_NAME.put(torch.distributed, ProcessGroupNCCL=group)
    CUDA_NAME.put(torch._C._distributed_c10d, ProcessGroupNCCL=group)
    # Symmetric memory comes from the devices' own allocator, in a pool or not.
    memory: Any = torch._C._distributed_c10d._SymmetricMemory
    CUDA_NAME.put(memory, get_mempool_allocator=staticmethod(lambda device: None))
    CUDA_NAME.put(c10d, ProcessGroupNCCL=group, _NCCL_AVAILABLE=True, default_pg_nccl_timeout=_TIMEOUT)
    CUDA_NAME.put(torch.distributed.constants, default_pg_nccl_timeout=_TIMEOUT)
    for creator in (name for names in torch_version.NCCL_CREATORS.values() for name in names):
        if hasattr(c10d, creator):
            CUDA_NAME.put(c10d, **{creator: c10d._create_nccl_process_group})


def _with_methods(group: Any) -> Any:
    # Of the class itself: PyTorch's C++ keeps groups, and makes their Python objects anew.
    options, settings = _C.CommunicatorOptions, _C.CommunicatorConfig
    for owner, name in ((group, "ProcessGroupNCCL"), (options, "Options"), (settings, "NCCLConfig")):
        owner.__module__ = "torch.distributed.distributed_c10d"
        owner.__name__ = name
        owner.__qualname__ = name if owner is group else f"ProcessGroupNCCL.{name}"
    group.__init__ = _constructor(group.__init__)
    group.Options = options
    group.NCCLConfig = settings
    for method in _METHODS:
        setattr(group, method.__name__, method)
    group.get_build_nccl_version = staticmethod(_version)
    group.get_runtime_nccl_version = staticmethod(_version)
    return group


def _constructor(made: Callable[..., None]) -> Callable[..., None]:
    """Return what ``ProcessGroupNCCL(store, rank, size, options)`` calls, which takes a timeout instead, too.

    A variable of the watchdog with a bad value is a RuntimeError, as it is of PyTorch's.
    """

    def __init__(  # noqa: N807
        self: Any,
        store: Any,
        rank: int,
        size: int,
        options: Any = _TIMEOUT,
        *,
        timeout: timedelta | None = None,
    ) -> None:
        if timeout is not None or isinstance(options, timedelta):
            options = _C.CommunicatorOptions(NAME, options if timeout is None else timeout)
        try:
            made(self, store, rank, size, options)
        except ConfigurationError as error:  # PyTorch's is of this type
            raise RuntimeError(str(error)) from error

    return __init__


def _group_start(self: Any) -> None:
    """Do nothing: nothing is aborted together."""


def _group_end(self: Any) -> None:
    """Do nothing: nothing is aborted together."""


def register_mem_pool(self: Any, pool: Any) -> None:
    """Do nothing: all memory of a device can be given to collectives."""


def deregister_mem_pool(self: Any, pool: Any) -> None:
    """Do nothing, as :func:`register_mem_pool`."""


def _version() -> tuple[int, ...]:
    version: Any = torch.cuda.nccl.version
    return tuple(version())


_METHODS: tuple[Callable[..., Any], ...] = (
    _group_start,
    _group_end,
    register_mem_pool,
    deregister_mem_pool,
)

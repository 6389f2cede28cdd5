"""Storages between processes under CUDA's name, where PyTorch's reductions ask the storage itself.

``torch.multiprocessing`` sends a tensor of CUDA, or the parts of a sparse or nested one, by ``_share_cuda_``,
and receives it by ``_new_shared_cuda``. A CPU build of PyTorch has no body for them. The handle here counts
and orders the uses itself, which CUDA's leaves to PyTorch: see ``torch_loom.device.ipc``.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_loom import _C, config
from torch_loom.device._core.first_use import _lazy_init
from torch_loom.patches.declared import CUDA_NAME

# Device, handle, bytes, offset, counter's handle and offset, event's handle, whether to wait for it.
_Shared = tuple[int, bytes | None, int, int, bytes, int, bytes, bool]


def install() -> None:
    """Give storages the methods that PyTorch's reductions call."""
    CUDA_NAME.put(
        torch.UntypedStorage,
        _share_cuda_=_share,
        _new_shared_cuda=staticmethod(_new_shared),
        _release_ipc_counter_cuda=staticmethod(_release_counter),
    )


def _share(storage: torch.UntypedStorage) -> _Shared:
    if storage.device.type != config.CUDA_NAME:
        raise RuntimeError(f"_share_cuda_: only available on CUDA, but the storage is on {storage.device}")
    handle = _C.ipc_send(storage) if storage.nbytes() else None
    return storage.device.index, handle, storage.nbytes(), 0, b"", 0, b"", False


def _new_shared(device: int, handle: bytes, *counted: Any) -> torch.UntypedStorage:
    _lazy_init()
    return _C.ipc_receive(handle)


def _release_counter(*counted: Any) -> None:
    """Do nothing: the receiver's storage gives its memory back when it ends."""

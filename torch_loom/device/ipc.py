"""Tensors, storages and events between processes, through ``torch.multiprocessing``.

A tensor that is put into a queue, sent through a pipe or passed to a process is not copied: both processes
see the same memory, on the device of the same index. Start processes with ``spawn`` or ``forkserver``.

* The sender waits until its device has finished what was submitted before. The receiver may use the tensor at
  once; what either writes later, the other sees once the writer has synchronised.
* What was sent stays allocated in the sender until no receiver holds it, even if the sender has deleted it,
  and an unreceived message holds it, too. A receiver that is killed holds nothing.
* The sender must live until the message has been received. After that it may end: the memory stays.
* The receiver's statistics do not count what it received: the sender pays.
* What was received cannot be sent on, nor be resized: send or resize a ``clone()``.
"""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device._core.first_use import _lazy_init, is_initialized
from torch_loom.device.streams import Event

__all__ = ["ipc_collect"]


def ipc_collect() -> None:
    """Free what was kept for other processes and is held by none of them any more.

    This happens by itself whenever something is sent or received, and before memory runs out. Does nothing
    before first use.
    """
    if is_initialized():
        _C.ipc_collect()


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type != DEVICE_TYPE:
        return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
    if storage.nbytes() == 0:
        return _empty_storage, (storage.device.index,)
    return _receive_storage, (_C.ipc_send(storage),)


def _empty_storage(index: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=torch.device(DEVICE_TYPE, index))  # type: ignore[no-untyped-call]


def _receive_storage(handle: bytes) -> torch.UntypedStorage:
    _lazy_init()
    return _C.ipc_receive(handle)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    if tensor.device.type != DEVICE_TYPE or tensor.layout != torch.strided:
        return reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    is_conj, is_neg = tensor.is_conj(), tensor.is_neg()
    if not (is_conj or is_neg) or (tensor.requires_grad and not tensor.is_leaf):
        return reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    # PyTorch's own way loses these bits, and with them the right numbers.
    plain = tensor.detach()
    plain = torch._conj(plain) if is_conj else plain
    plain = torch._neg_view(plain) if is_neg else plain
    return _rebuild_bits, (plain, is_conj, is_neg, tensor.requires_grad)


def _rebuild_bits(plain: torch.Tensor, is_conj: bool, is_neg: bool, requires_grad: bool) -> torch.Tensor:
    tensor = torch._conj(plain) if is_conj else plain
    tensor = torch._neg_view(tensor) if is_neg else tensor
    return tensor.requires_grad_(requires_grad)


def _reduce_event(event: Event) -> Any:
    place = event.device or torch.device(DEVICE_TYPE, 0)
    return Event.from_ipc_handle, (place, event.ipc_handle())


reduction.register(Event, _reduce_event)

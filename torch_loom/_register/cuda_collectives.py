"""Collectives of tensors under CUDA's name, over a process group that reaches the CPU's memory only.

Gloo is built without CUDA in a CPU build of PyTorch, and is asked for CUDA tensors all the same: it would
read their addresses as its own kernels do, and crash. So each collective runs on copies on the host.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torch_loom import config

_OPS = (
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "barrier",
    "broadcast_",
    "gather_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "_reduce_scatter_base_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
    "send",
)

# Between two ranks: a program may start several before it waits for one, and each wait of gloo's takes one
# message, so that a second one would not end.
_PAIRED = frozenset({"recv_", "recv_any_source_", "send"})

# Kept: the registrations go with it.
_library: Any = None


def provide() -> None:
    """Register them, if this build has collectives."""
    global _library
    if not torch.distributed.is_available():
        return
    make: Any = torch.library.Library
    _library = make("c10d", "IMPL")
    with warnings.catch_warnings():
        # PyTorch says that a kernel of its own is replaced.
        warnings.simplefilter("ignore")
        for name in _OPS:
            op = getattr(torch.ops.c10d, name)
            stage = _when_waited_for if name in _PAIRED else _through_the_host
            _library.impl(name, stage(op.default), "CUDA")


def _through_the_host(op: Any) -> Callable[..., Any]:
    def collective(*arguments: Any) -> Any:
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        result = op(*(_on_host(argument, copies) for argument in arguments))
        work = result[-1] if isinstance(result, (tuple, list)) else result
        work.wait()
        for original, copy in copies.values():
            original.copy_(copy)
        if isinstance(result, (tuple, list)):
            return (*(_on_device(part, copies) for part in result[:-1]), work)
        return result

    return collective


def _when_waited_for(op: Any) -> Callable[..., Any]:
    work_type = _distributed().Work
    # Until somebody waits for them: the caller's object is the one that is made here.
    pending: set[Any] = set()

    class Message(work_type):  # type: ignore[misc, valid-type]
        """A message under way: what arrives is copied to the device when somebody waits for it."""

        def __init__(self, work: Any, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
            super().__init__()
            self._work = work
            self._copies = copies
            self._has_ended = False
            self._failure: Exception | None = None
            self._lock = threading.Lock()
            pending.add(self)

        def wait(self, *timeout: Any) -> bool:
            """Wait for it, at most as long as `timeout`; raise what made it fail, each time."""
            with self._lock:  # whoever waits second finds the copies made
                if not self._has_ended:
                    pending.discard(self)
                    try:
                        self._work.wait(*timeout)
                        with torch.no_grad():
                            for original, copy in self._copies:
                                original.copy_(copy)
                    except Exception as error:
                        self._failure = error
                    self._has_ended = True
                if self._failure is not None:
                    raise self._failure
            return True

        def is_completed(self) -> bool:
            """Return whether it has arrived."""
            return self._has_ended or bool(self._work.is_completed())

        def _source_rank(self) -> int:
            return int(self._work._source_rank())

    def message(*arguments: Any) -> Any:
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        work = op(*(_on_host(argument, copies) for argument in arguments))
        # Nobody needs to wait for what was sent.
        pending.difference_update([one for one in list(pending) if not one._copies and one.is_completed()])
        is_sent = op is torch.ops.c10d.send.default
        work = work if isinstance(work, work_type) else work_type.unbox(work)
        return Message(work, [] if is_sent else list(copies.values())).boxed()

    return message


def _distributed() -> Any:
    return importlib.import_module("torch._C._distributed_c10d")


def _on_host(value: Any, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_on_host(part, copies) for part in value]
    if not isinstance(value, torch.Tensor) or value.device.type != config.CUDA_NAME:
        return value
    copies.setdefault(id(value), (value, value.cpu()))
    return copies[id(value)][1]


def _on_device(value: Any, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_on_device(part, copies) for part in value]
    if not isinstance(value, torch.Tensor):
        return value
    for original, copy in copies.values():
        if copy.data_ptr() == value.data_ptr() and copy.shape == value.shape:
            return original
    return value.to(config.CUDA_NAME)

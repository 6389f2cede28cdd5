"""The backend ``rbln-ccl`` of ``torch.distributed``: collectives of the vendor's list, on copies on the host.

A group is gloo's, which reaches the host's memory. What the vendor's group has not (``reduce``, ``gather``,
``all_to_all``) this one has not either.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch

from torch_loom import config
from torch_loom.device._core.device_index import DEVICE_TYPE

BACKEND = "rbln-ccl"

_COLLECTIVES = (
    *("allgather", "_allgather_base", "allgather_into_tensor_coalesced", "allreduce", "barrier", "broadcast"),
    *("recv", "_reduce_scatter_base", "reduce_scatter", "scatter", "send"),
)
# What C++ asks the work of for its results: they are in the tensors that were given.
_IN_PLACE = frozenset({"allreduce", "broadcast"})
# As newer versions of PyTorch call them.
_NEWER = {"all_gather_single": "_allgather_base", "reduce_scatter_single": "_reduce_scatter_base"}


def register() -> None:
    """Let ``init_process_group("rbln-ccl")`` make such a group, if this build has gloo."""
    distributed: Any = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        return
    if BACKEND.upper() not in distributed.Backend._plugins:
        distributed.Backend.register_backend(BACKEND, _made, devices=[DEVICE_TYPE, "cpu"])


def _made(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return _group_type()(store, rank, size, timeout)


@functools.cache
def _group_type() -> Any:
    c10d: Any = torch._C._distributed_c10d

    class ProcessGroupRBLN(c10d.ProcessGroup):  # type: ignore[misc]
        """A group of processes whose collectives take tensors of these devices, and of the host.

        With TORCH_RBLN_C10D_ASYNC=1, read here, a collective is done by a thread of the group, in the order
        in which they are called, and the work that it returns is waited for. Else it is done when it returns.
        """

        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
            super().__init__(rank, size)
            self._gloo = c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)
            self._thread = ThreadPoolExecutor(1, "rbln-ccl") if config.is_rbln_async() else None

        def getBackendName(self) -> str:  # noqa: N802 (PyTorch's name)
            """Return ``"rbln-ccl"``."""
            return BACKEND

        def _start(self, name: str, *args: Any, **kwargs: Any) -> Any:
            run = functools.partial(self._done, getattr(self._gloo, name), args, kwargs)
            # A Work of Python's own would be freed while C++, DDP's reducer, still waits for it.
            found = torch.futures.Future()  # type: ignore[var-annotated]
            work = c10d._create_work_from_future(found)
            results = args[0] if name in _IN_PLACE else []
            if self._thread is None:
                run()
                found.set_result(results)
            else:
                # What the program has issued before comes first; it does not wait for it here.
                ready = _recorded((args, kwargs))
                self._thread.submit(_after, ready, run, found, results)
            return work

        @staticmethod
        def _done(collective: Callable[..., Any], args: Any, kwargs: Any) -> None:
            copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
            given = [_on_host(one, copies) for one in args]
            named = {name: _on_host(one, copies) for name, one in kwargs.items()}
            collective(*given, **named).wait()
            with torch._C._AutoDispatchBelowADInplaceOrView():  # as a kernel: parameters, too
                for original, copy in copies.values():
                    original.copy_(copy)

    for name, own in (*zip(_COLLECTIVES, _COLLECTIVES, strict=True), *_NEWER.items()):
        setattr(ProcessGroupRBLN, name, functools.partialmethod(ProcessGroupRBLN._start, own))
    return ProcessGroupRBLN


def _after(events: Sequence[torch.Event], run: Callable[[], None], found: Any, results: Any) -> None:
    try:
        for event in events:
            event.synchronize()
        run()
    except Exception as error:
        found.set_exception(error)
    else:
        found.set_result(results)


def _recorded(value: Any) -> list[torch.Event]:
    """Return an event on the current stream of each device that a tensor among the arguments is on."""
    devices = {one.device for one in _tensors(value)}
    return [torch.accelerator.current_stream(device).record_event() for device in devices]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.device.type == DEVICE_TYPE else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _on_host(value: Any, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_on_host(part, copies) for part in value]
    if not isinstance(value, torch.Tensor) or value.device.type != DEVICE_TYPE:
        return value
    if id(value) not in copies:
        copies[id(value)] = (value, value.detach().cpu())
    return copies[id(value)][1]

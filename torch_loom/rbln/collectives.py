"""The backend ``rbln-ccl`` of ``torch.distributed``: collectives of the vendor's list.

Tensors of the devices go through the communicator of :mod:`torch_loom.distributed`, tensors of the host
through gloo. What the vendor's group has not (``reduce``, ``gather``, ``all_to_all``) this one has not
either.
"""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch

from torch_loom import config, distributed
from torch_loom.config import settings
from torch_loom.device._core.device_index import DEVICE_TYPE

BACKEND = "rbln-ccl"

_COLLECTIVES = (
    *("allgather", "_allgather_base", "allgather_into_tensor_coalesced", "allreduce", "barrier", "broadcast"),
    *("recv", "_reduce_scatter_base", "reduce_scatter", "scatter", "send"),
)
# As newer versions of PyTorch call them.
_NEWER = {"all_gather_single": "_allgather_base", "reduce_scatter_single": "_reduce_scatter_base"}


def register() -> None:
    """Let ``init_process_group("rbln-ccl")`` make such a group, if this build has gloo."""
    backends: Any = torch.distributed
    if not backends.is_available() or not backends.is_gloo_available():
        return
    if BACKEND.upper() not in backends.Backend._plugins:
        backends.Backend.register_backend(BACKEND, _made, devices=[DEVICE_TYPE, "cpu"])


def _made(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return _group_type()(store, rank, size, timeout)


@functools.cache
def _group_type() -> Any:
    c10d: Any = torch._C._distributed_c10d

    class ProcessGroupRBLN(c10d.ProcessGroup):  # type: ignore[misc]
        """A group of processes whose collectives take tensors of these devices, and of the host.

        With TORCH_RBLN_C10D_ASYNC=1, read here, a collective of the devices runs beside the program, and the
        work that it returns is waited for. Else it is done when it returns.
        """

        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
            super().__init__(rank, size)
            on_host, on_devices = (c10d.PrefixStore(name, store) for name in ("host", "devices"))
            self._gloo = c10d.ProcessGroupGloo(on_host, rank, size, timeout=timeout)
            self._devices = distributed.make(on_devices, rank, size, timeout, BACKEND)
            self._is_async = config.value(settings.RBLN_C10D_ASYNC)

        def getBackendName(self) -> str:  # noqa: N802 (PyTorch's name)
            """Return ``"rbln-ccl"``."""
            return BACKEND

        def _start(self, name: str, *args: Any, **kwargs: Any) -> Any:
            devices = {
                tensor.device for tensor in _tensors((args, kwargs)) if tensor.device.type == DEVICE_TYPE
            }
            if not devices:
                work = getattr(self._gloo, name)(*args, **kwargs)
                work.wait()
                return work
            work = getattr(self._devices, name)(*args, **kwargs)
            if not self._is_async:
                work.wait()
                for device in devices:
                    torch.accelerator.current_stream(device).synchronize()
            return work

    for name, own in (*zip(_COLLECTIVES, _COLLECTIVES, strict=True), *_NEWER.items()):
        setattr(ProcessGroupRBLN, name, functools.partialmethod(ProcessGroupRBLN._start, own))
    return ProcessGroupRBLN


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]

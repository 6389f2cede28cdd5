"""The registration of the backend with ``torch.distributed``, under the name that the device type has."""

from __future__ import annotations

import atexit
from datetime import timedelta
from typing import Any

import torch

from torch_loom import _C, config, late
from torch_loom.distributed import cluster, symmetric

flight_recorder = late.lazily("torch_loom.distributed.flight_recorder")

BACKEND = "loom"
"""The backend's name where the devices are not CUDA's."""


def register(device_type: str) -> None:
    """Make the backend the default of a device type, if this build of PyTorch has collectives.

    Under the name cuda, PyTorch finds it as :mod:`torch_loom.cuda.nccl` says.
    """
    if not torch.distributed.is_available():
        return
    _C.set_collective_prices(_number_of, _cost_ns)
    _C.set_collective_watchdog(_read_variables)
    # A rank that ends waits for its streams, and must not wait for other ranks in them.
    atexit.register(_C.abort_collectives)
    late.after_import("torch_loom.device._core.first_use", _wait_for_first_use)
    _C.provide_symmetric_memory()
    symmetric.provide("CUDA" if device_type == config.CUDA_NAME else "PrivateUse1")
    backend: Any = torch.distributed.Backend
    if device_type == config.CUDA_NAME:
        flight_recorder.provide()
    elif BACKEND.upper() not in backend._plugins:
        backend.register_backend(BACKEND, make, devices=[device_type])


def traffic() -> list[tuple[str, int, int, int]]:
    """Return what this process has issued of collectives and messages so far.

    Each is a name, the number of ranks of the groups, how many, and the bytes that this rank gave in all; of
    messages that it received, the bytes received.
    """
    return _C.collective_traffic()


def make(store: Any, rank: int, size: int, timeout: timedelta, name: str = BACKEND) -> Any:
    """Return a communicator of the group's ranks, which have one store.

    Args:
        store: of ``torch.distributed``; ranks find each other in it at their first collective.
        rank: of this process, 0 to ``size - 1``.
        size: how many ranks there are.
        timeout: after which a collective that has begun counts as failed.
        name: the backend's, in messages and profiles.
    """
    return _C.Communicator(store, rank, size, _C.CommunicatorOptions(name, timeout))


# Ranks of groups, in the order of their numbers.
_groups: list[tuple[int, ...]] = []
_numbers: dict[tuple[int, ...], int] = {}


def _number_of(ranks: list[int]) -> int:
    key = tuple(ranks)
    number = _numbers.setdefault(key, len(_groups))
    if number == len(_groups):
        _groups.append(key)
    return number


def _cost_ns(device: int, name: str, size_bytes: int, group: int) -> int:
    from torch_loom.device._core import clock  # with the devices

    return clock.collective_ns(device, name, size_bytes, _groups[group], cluster.topology())


def _read_variables() -> tuple[bool, Any]:
    """Return what a group that is made now does: programs set variables before they make one."""
    from torch_loom.config import watchdog

    is_nccl = config.device_name() == config.CUDA_NAME
    return config.checks_collectives(), watchdog.read() if is_nccl else None


def _wait_for_first_use() -> None:
    from torch_loom.device._core import first_use

    first_use.at_first_use(_set_mode)


def _set_mode(settings: config.Settings) -> None:
    if settings.device_name == config.CUDA_NAME:
        _C.set_collective_dump(flight_recorder.write)

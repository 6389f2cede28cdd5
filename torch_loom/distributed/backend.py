"""The registration of the backend with ``torch.distributed``, under the name that the device type has."""

from __future__ import annotations

import atexit
from datetime import timedelta
from typing import Any

import torch

from torch_loom import _C, config
from torch_loom.device._core import clock, first_use
from torch_loom.distributed import cluster

BACKEND = "loom"
"""The backend's name where the devices are not CUDA's."""


def register(device_type: str) -> None:
    """Make the backend the default of a device type, if this build of PyTorch has collectives.

    Under the name cuda, PyTorch finds it as :mod:`torch_loom.cuda.nccl` says.
    """
    if not torch.distributed.is_available():
        return
    _C.set_collective_cost(_cost_ns)
    # A rank that ends waits for its streams, and must not wait for other ranks in them.
    atexit.register(_C.abort_collectives)
    first_use.at_first_use(_set_mode)
    backend: Any = torch.distributed.Backend
    if device_type != config.CUDA_NAME and BACKEND.upper() not in backend._plugins:
        backend.register_backend(BACKEND, make, devices=[device_type])


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


def _cost_ns(device: int, name: str, size_bytes: int, num_ranks: int) -> int:
    return clock.collective_ns(device, name, size_bytes, range(num_ranks), cluster.topology())


def _set_mode(settings: config.Settings) -> None:
    _C.set_collective_checks(config.checks_collectives())

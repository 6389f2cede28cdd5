"""The process group ``nccl`` under CUDA's name: gloo's, on copies on the host.

A CPU build of PyTorch has no ``ProcessGroupNCCL`` and refuses the name. What stands for it here is a process
group of gloo with that name, its options and the private methods that PyTorch's Python calls; collectives of
tensors on a device go through the host (:mod:`torch_loom.cuda.collectives`).
"""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch

from torch_loom import config
from torch_loom.cuda import collectives
from torch_loom.patches.declared import CUDA_NAME

NAME = "nccl"
# PyTorch's own for NCCL.
_TIMEOUT = timedelta(minutes=10)


class _Config:
    """Settings of a communicator, as ``ncclConfig_t``: kept, and without effect."""


class Options:
    """What ``init_process_group(pg_options=…)`` takes: kept, and without effect but for the timeout."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = _Config()
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.split_from: Any = None
        self.split_color = 0
        self._timeout = _TIMEOUT

    @property
    def backend(self) -> str:
        """The name of the process group."""
        return NAME


def provide() -> None:
    """Put it where PyTorch looks for it, if this build has gloo. NCCL, if it has that, gives way."""
    if not torch.distributed.is_available():
        return
    c10d: Any = torch.distributed.distributed_c10d
    if not c10d.is_gloo_available():
        return
    group = _group_type(c10d.ProcessGroupGloo)
    CUDA_NAME.put(torch.distributed, ProcessGroupNCCL=group)
    if hasattr(torch._C._distributed_c10d, "ProcessGroupNCCL"):
        CUDA_NAME.put(torch._C._distributed_c10d, ProcessGroupNCCL=group)
    CUDA_NAME.put(c10d, ProcessGroupNCCL=group, _NCCL_AVAILABLE=True, default_pg_nccl_timeout=_TIMEOUT)
    _reach_the_host(c10d.BackendConfig)
    _coalesce(c10d.ProcessGroup)


def _group_type(gloo: Any) -> Any:
    class ProcessGroupNCCL(gloo):  # type: ignore[misc]
        """A process group of gloo under the name of NCCL's."""

        def __init__(self, store: Any, rank: int, size: int, options: Options) -> None:
            super().__init__(store, rank, size, timeout=options._timeout)
            self.options.global_ranks_in_group = options.global_ranks_in_group
            self.options.group_name = options.group_name

        uid = 0

        def name(self) -> str:
            """Return the name by which the program asked for it."""
            return NAME

        def _group_start(self) -> None:
            """Do nothing: nothing is aborted together."""

        _group_end = _group_start

        def _add_ephemeral_timeout(self, timeout: timedelta) -> None:
            """Do nothing: timeouts are the group's."""

    ProcessGroupNCCL.Options = Options
    ProcessGroupNCCL.__module__ = "torch.distributed.distributed_c10d"
    ProcessGroupNCCL.__qualname__ = "ProcessGroupNCCL"
    return ProcessGroupNCCL


def _reach_the_host(backend_config: Any) -> None:
    # A group for devices alone would have nothing for the copies on the host.
    original = backend_config.__init__

    @functools.wraps(original)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        backends = self.device_backend_map
        if config.CUDA_NAME in backends and "cpu" not in backends:
            backends["cpu"] = backends[config.CUDA_NAME]

    CUDA_NAME.put(backend_config, __init__=initialize)


def _coalesce(group: Any) -> None:
    # Gloo has nothing to begin or to end: what is between them runs by itself.
    start, end = group._start_coalescing, group._end_coalescing

    @functools.wraps(start)
    def start_coalescing(self: Any, device: torch.device) -> None:
        if device.type == config.CUDA_NAME:
            collectives.begin_batch()
        else:
            start(self, device)

    @functools.wraps(end)
    def end_coalescing(self: Any, device: torch.device) -> Any:
        return collectives.end_batch() if device.type == config.CUDA_NAME else end(self, device)

    CUDA_NAME.put(group, _start_coalescing=start_coalescing, _end_coalescing=end_coalescing)

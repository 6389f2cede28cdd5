"""A process group of a said size whose other ranks do not exist: its collectives take time and do nothing.

A dry run has one process. What sharding over many devices needs of each of them is seen on one of the ranks:
memory by what it allocates, and time with what its collectives take. On devices of a dry run nothing is
computed, so that the communicator of real groups serves these as well: in stream order, and without others.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import distributed

from torch_loom import _C, config
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.errors import DryRunError
from torch_loom.patches.declared import DRY_RUNS

BACKEND = "loom_plan"
MAX_RANKS = 1 << 16

_ddp: _Ddp | None = None


class PlannedGroup:
    """The default process group, while it is there.

    Args:
        num_ranks: how many there are.
        rank: which of them this process is.

    Raises:
        DryRunError: PyTorch was built without collectives, or there is a default process group.
    """

    def __init__(self, num_ranks: int, rank: int = 0) -> None:
        if not dist.is_available():
            raise DryRunError("plan.world_size: this build of PyTorch has no torch.distributed")
        if dist.is_initialized():
            raise DryRunError(
                "plan.world_size: there is a default process group already; call "
                "torch.distributed.destroy_process_group() before"
            )
        if BACKEND not in dist.Backend.backend_list:
            dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", DEVICE_TYPE])
        self.num_ranks = num_ranks
        self.rank = rank
        dist.init_process_group(BACKEND, rank=rank, world_size=num_ranks, store=_distributed().HashStore())
        self._group = dist.group.WORLD

    def end(self) -> None:
        """Destroy it, unless the program has."""
        if dist.is_initialized() and dist.group.WORLD is self._group:
            dist.destroy_process_group()


class _Ddp:
    """Has DistributedDataParallel do without what it reads of the device.

    It compares the models of all ranks by values that went over the device: the ranks that do not exist have
    this one's. In the same way the ranks agree, after the first step, on buckets of gradients in the order in
    which they came: here buckets have those sizes from the first step on, and the order of the parameters.
    """

    def __init__(self) -> None:
        limits = distributed._BucketCapacityConfig.compute_bucket_size_limits
        verify = getattr(dist, "_verify_params_across_processes", None)

        def limits_of_later_steps(config: Any, **_: Any) -> Any:
            # PyTorch gives the first step one bucket, unless parameters may be unused.
            return limits(config, static_graph=False, find_unused_parameters=True)

        def verify_others(process_group: Any, tensors: Any, *arguments: Any) -> None:
            if _is_planned(process_group):
                _ask_others(process_group, tensors)
            elif verify is not None:
                verify(process_group, tensors, *arguments)

        self._before = [
            *DRY_RUNS.put(
                distributed._BucketCapacityConfig, compute_bucket_size_limits=limits_of_later_steps
            ),
            *DRY_RUNS.put(dist, _verify_params_across_processes=verify_others),
            *DRY_RUNS.put(_distributed().Reducer, _rebuild_buckets=lambda reducer: False),
        ]

    def restore(self) -> None:
        DRY_RUNS.restore(self._before)


def _ask_others(process_group: Any, tensors: Any) -> None:
    """Issue what the comparison of models does: how many tensors there are, their sizes and strides."""
    count = torch.empty(1, dtype=torch.int64, device=tensors[0].device)
    dist.all_gather(
        [torch.empty_like(count) for _ in range(process_group.size())], count, group=process_group
    )
    shapes = count.new_empty(2 * sum(tensor.dim() for tensor in tensors))
    dist.broadcast(shapes, group=process_group, group_src=0)


def plan_fake_groups() -> None:
    """Have groups of PyTorch's backend ``fake`` take time, where they are made in a dry run.

    They move nothing, as its own; called when the module that registers the backend has been imported.
    """
    plugins: Any = dist.Backend._plugins
    original = plugins["FAKE"]

    def create(settings: Any, options: Any) -> Any:
        return (original.creator_fn if _C.world() == 0 else _create)(settings, options)

    plugins["FAKE"] = original._replace(creator_fn=create)


def end_planned_groups() -> None:
    """Undo what groups have changed of PyTorch: the dry run ends."""
    global _ddp
    if _ddp is not None:
        _ddp.restore()
        _ddp = None


def _create(settings: Any, _: object) -> Any:
    """Return a group with a backend for the devices, and one for the host that moves nothing."""
    global _ddp
    if _ddp is None:
        _ddp = _Ddp()
    name = "nccl" if DEVICE_TYPE == config.CUDA_NAME else "loom"
    options = _C.CommunicatorOptions(name, settings.timeout)
    options.global_ranks_in_group = settings.global_ranks_in_group
    options.group_name = settings.group_id
    rank, size = settings.group_rank, settings.group_size
    group: Any = dist.ProcessGroup(settings.store, rank, size)
    kind = group.BackendType.CUSTOM
    group._set_default_backend(kind)
    # No other rank is there to be found, and stores of fake groups have nothing.
    communicator = _C.Communicator(_distributed().HashStore(), rank, size, options)
    group._register_backend(torch.device(DEVICE_TYPE), kind, communicator)
    # PyTorch's own: what it can, it copies from this rank.
    on_host = _distributed().FakeProcessGroup._create_internal(rank, size)
    group._register_backend(torch.device("cpu"), group.BackendType.UNDEFINED, on_host)
    return group


def _is_planned(group: Any) -> bool:
    return isinstance(group._get_backend(torch.device(DEVICE_TYPE)), _C.Communicator)


def _distributed() -> Any:
    return importlib.import_module("torch._C._distributed_c10d")

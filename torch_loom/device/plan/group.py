"""A process group of a said size whose other ranks do not exist: its collectives take time and do nothing.

A dry run has one process. What sharding over many devices needs of each of them is seen on one, the rank 0:
memory by what it allocates, and time with what its collectives take over the links of the chip.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import distributed

from torch_loom import _C, config
from torch_loom.device._core import clock
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.errors import DryRunError
from torch_loom.patches.declared import DRY_RUNS

BACKEND = "loom_plan"
MAX_RANKS = 1 << 16


class PlannedGroup:
    """The default process group, while it is there.

    Args:
        num_ranks: how many there are; this process is the first.

    Raises:
        DryRunError: PyTorch was built without collectives, or there is a default process group.
    """

    def __init__(self, num_ranks: int) -> None:
        if not dist.is_available():
            raise DryRunError("plan.world_size: this build of PyTorch has no torch.distributed")
        if dist.is_initialized():
            raise DryRunError(
                "plan.world_size: there is a default process group already; call "
                "torch.distributed.destroy_process_group() before"
            )
        _register()
        self.num_ranks = num_ranks
        self._ddp = _Ddp()
        try:
            dist.init_process_group(BACKEND, rank=0, world_size=num_ranks, store=_distributed().HashStore())
        except BaseException:
            self._ddp.restore()
            raise
        self._group = dist.group.WORLD

    def end(self) -> None:
        """Destroy it, unless the program has."""
        self._ddp.restore()
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

        def verify_others(process_group: Any, *arguments: Any) -> None:
            if verify is not None and not isinstance(process_group, _Ranks):
                verify(process_group, *arguments)

        self._before = [
            *DRY_RUNS.put(
                distributed._BucketCapacityConfig, compute_bucket_size_limits=limits_of_later_steps
            ),
            *DRY_RUNS.put(dist, _verify_params_across_processes=verify_others),
            *DRY_RUNS.put(_distributed().Reducer, _rebuild_buckets=lambda reducer: False),
        ]

    def restore(self) -> None:
        DRY_RUNS.restore(self._before)


def plan_fake_groups() -> None:
    """Have groups of PyTorch's backend ``fake`` take time, where they are made in a dry run.

    They move nothing, as its own; called when the module that registers the backend has been imported.
    """
    plugins: Any = dist.Backend._plugins
    original = plugins["FAKE"]

    def create(settings: Any, options: Any) -> Any:
        if _C.world() == 0:
            return original.creator_fn(settings, options)
        return _Ranks(settings.group_rank, settings.group_size)

    plugins["FAKE"] = original._replace(creator_fn=create)


def _register() -> None:
    if BACKEND in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(BACKEND, _create, devices=["cpu", DEVICE_TYPE])


def _create(store: object, rank: int, num_ranks: int, timeout: object) -> _Ranks:
    return _Ranks(rank, num_ranks)


_numbers = itertools.count()


# A build without collectives has no such class.
_Group: Any = dist.ProcessGroup if dist.is_available() else object


def _collective(name: str, moved: int) -> Callable[..., Any]:
    """Return a method of a group; `moved` is the place of what it sends; results come first."""

    def run(self: Any, *arguments: Any, opts: object = None) -> Any:
        return self._run(name, arguments[moved], arguments[0])

    return run


class _Ranks(_Group):  # type: ignore[misc]
    """What PyTorch calls: a collective returns at once, and takes its time on the current stream."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        super().__init__(rank, num_ranks)
        self._num_ranks = num_ranks
        self._name = f"{BACKEND}_{next(_numbers)}"

    def size(self) -> int:
        return self._num_ranks

    def getBackendName(self) -> str:  # noqa: N802 (PyTorch's)
        return BACKEND

    @property
    def pg_name(self) -> str:
        return dist.distributed_c10d._world.pg_names.get(self, self._name)

    @property
    def group_name(self) -> str:
        return self.pg_name

    allreduce = allreduce_coalesced = _collective("all_reduce", moved=0)
    reduce = _collective("reduce_scatter", moved=0)
    broadcast = _collective("broadcast", moved=0)
    allgather = all_gather_single = all_gather_single_coalesced = _collective("all_gather", moved=0)
    reduce_scatter = reduce_scatter_single = reduce_scatter_single_coalesced = _collective(
        "reduce_scatter", moved=1
    )
    alltoall = all_to_all_single = _collective("all_to_all", moved=1)

    send = _collective("send", moved=0)
    recv = recv_anysource = _collective("recv", moved=0)

    def gather(self, outputs: Any, inputs: Any, opts: object = None) -> Any:
        return self._run("all_gather", outputs or inputs, outputs)

    def scatter(self, outputs: Any, inputs: Any, opts: object = None) -> Any:
        return self._run("reduce_scatter", inputs or outputs, outputs)

    def barrier(self, opts: object = None) -> Any:
        return self._run("all_reduce", [], [])

    # The names that they had before.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _run(self, name: str, moved: object, result: object) -> Any:
        tensors = _tensors(moved)
        on_device = [tensor for tensor in tensors if tensor.device.type == DEVICE_TYPE]
        if on_device:
            size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in on_device)
            device = on_device[0].device
            nanoseconds = clock.collective_ns(
                device.index, name, size_bytes, range(self._num_ranks), config.topology()
            )
            with torch.get_device_module(DEVICE_TYPE).device(device):
                _C.plan_collective(name, nanoseconds)
        done: Any = torch.futures.Future()
        done.set_result(result)
        return _work_of(done)


def _work_of(future: Any) -> Any:
    return _distributed()._create_work_from_future(future)


def _distributed() -> Any:
    return importlib.import_module("torch._C._distributed_c10d")


def _tensors(value: object) -> Sequence[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(tensor for part in value for tensor in _tensors(part))
    return ()

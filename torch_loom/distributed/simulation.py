"""A cluster on one machine: some of its ranks run a program in dry runs, each in a process of its own.

The ranks that are not simulated do as those that are. The ranks that are begin their collectives together: a
rank that comes early waits in simulated time for the latest, and a message is not received before it is sent.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from torch_loom import _C
from torch_loom.chips import topologies
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.plan import dry_run
from torch_loom.device.plan.figures import Collectives, DryRunPlan
from torch_loom.device.plan.group import MAX_RANKS
from torch_loom.distributed import cluster
from torch_loom.distributed.meeting import Hall, ask
from torch_loom.distributed.objects import Objects
from torch_loom.distributed.ranks import as_rank
from torch_loom.errors import DryRunError, TopologyError

MAX_SIMULATED = 256
# So many ranks are simulated whole where the caller names none.
_ALL_UP_TO = 8
_MAX_DEVICES = 64


class RankPlan(NamedTuple):
    """What a rank of a simulated cluster needs: bytes of its device, seconds of the simulated clock.

    Of ``step_seconds`` the device runs something in ``step_busy_seconds``, and waits in the others.
    ``exposed_seconds`` are those in which collectives ran and nothing else did, ``waiting_seconds`` those in
    which collectives waited for later ranks that are simulated: a part of what collectives took.
    """

    rank: int
    chip: str
    capacity_bytes: int
    peak_memory_bytes: int
    peak_reserved_bytes: int
    memory_by_category: Mapping[str, int]
    seconds: float
    step_seconds: tuple[float, ...]
    step_busy_seconds: tuple[float, ...]
    seconds_by_family: Mapping[str, float]
    exposed_seconds: float
    waiting_seconds: float
    collectives: tuple[Collectives, ...]
    out_of_memory: str | None


class ClusterPlan(NamedTuple):
    """What the simulated ranks of a cluster need, by rank."""

    world_size: int
    topology: str
    ranks: Mapping[int, RankPlan]

    @property
    def seconds(self) -> float:
        """Device time of the rank that takes longest."""
        return max(rank.seconds for rank in self.ranks.values())

    @property
    def peak_memory_bytes(self) -> int:
        """Memory of the rank that needs most."""
        return max(rank.peak_memory_bytes for rank in self.ranks.values())


class Simulation:
    """A cluster in which functions can be run; made by :func:`simulate`."""

    def __init__(
        self,
        world_size: int,
        topology: topologies.Topology,
        ranks: tuple[int, ...],
        source: str,
        memory: int | str | None,
    ) -> None:
        self.world_size = world_size
        self.topology = topology
        self.ranks = ranks
        self._source = source
        self._memory = memory

    def __reduce__(self) -> Any:
        # For ranks that are new processes: the topology is read again there.
        return _again, (self.world_size, self._source, self.ranks, self._memory)

    def __call__(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> ClusterPlan:
        """Run a function as each of the simulated ranks, and return what these need.

        It finds what a launcher gives to its rank: ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE`` and so on, the
        current device, and the default process group; its own ``init_process_group()`` is that. What it
        returns is dropped. Each rank is a forked process; where this process has used its devices, a new one,
        for which function and arguments are pickled.

        Raises:
            DryRunError: a rank waits for another one that has ended, or that waits for it.
            Exception: what a rank raised, other than that memory ran out, which its plan says.
        """
        context: Any = multiprocessing.get_context("spawn" if _C.is_initialized() else "fork")
        hall = Hall(self.ranks)
        processes = []
        try:
            for rank in self.ranks:
                own, others = context.Pipe()
                process = context.Process(
                    target=_run_rank, args=(self, rank, others, function, args, kwargs), daemon=True
                )
                try:
                    process.start()
                except (pickle.PicklingError, AttributeError, TypeError) as error:
                    raise DryRunError(
                        f"simulate(): {error}. This process has used its devices, so that ranks are new "
                        "processes, for which the function and its arguments are pickled: define it in a "
                        "module, or simulate before devices are used"
                    ) from error
                others.close()
                hall.admit(rank, own)
                processes.append(process)
            results = hall.serve()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()
        return ClusterPlan(self.world_size, self.topology.name, results)

    def _plan(self, rank: int, connection: Connection, run: Callable[[], object]) -> RankPlan:
        waited_ns = 0

        def meet(key: str, members: list[int], name: str, ready_ns: int) -> int:
            nonlocal waited_ns
            begins_ns = ask(connection, key, members, name, ready_ns).begins_ns
            waited_ns += begins_ns - ready_ns
            return begins_ns

        def exchange(key: str, members: tuple[int, ...], name: str, given: Any) -> Mapping[int, Any]:
            return ask(connection, key, members, name, given=given).given

        objects = Objects(rank, self.ranks, exchange)
        count = min(self.topology.devices_per_node, self.world_size, _MAX_DEVICES)
        chip = self.topology.chip
        plan = None
        with cluster.using(self._source):
            try:
                with dry_run(chip=chip, devices=count, memory=self._memory) as plan:
                    _C.set_collective_meeting(meet, list(self.ranks))
                    device = rank % self.topology.devices_per_node % count
                    torch.get_device_module(DEVICE_TYPE).set_device(device)
                    with as_rank(plan, rank, self.world_size, self.topology.devices_per_node, objects):
                        run()
            except torch.OutOfMemoryError:
                # The plan says it.
                if plan is None or plan.out_of_memory is None:
                    raise
            finally:
                _C.set_collective_meeting(None, [])
        assert plan is not None
        return _of_rank(rank, chip, device, plan, waited_ns)


def simulate(
    *,
    world_size: int,
    topology: str | os.PathLike[str],
    ranks: Iterable[int] | None = None,
    memory: int | str | None = None,
) -> Simulation:
    """Return a cluster on this machine, which runs a function as some of its ranks.

    Args:
        world_size: how many ranks there are, 1 to 65536.
        topology: the cluster, by the name of a shipped description or the path of one.
        ranks: that are simulated, at most 256; if None, all of up to 8, else the first.
        memory: of each device, in bytes or as a size such as ``"16GiB"``; if None, the chip's.

    Raises:
        TopologyError: the topology cannot be used, or so many ranks do not fit into it.
        ValueError: a number is out of range.

    Example:
        >>> from torch_loom.distributed import simulate
        >>> plan = simulate(world_size=1024, topology="dgx-h100", ranks=[0, 511])(train)  # doctest: +SKIP
        >>> plan.ranks[511].peak_memory_bytes  # doctest: +SKIP
    """
    if not isinstance(world_size, int) or not 1 <= world_size <= MAX_RANKS:
        raise ValueError(f"simulate(): world_size must be 1 to {MAX_RANKS}, got {world_size!r}")
    found = topologies.load(topology)
    if found.nics_per_node == 0 and world_size > found.devices_per_node:
        raise TopologyError(
            f"simulate(): {world_size} ranks need several nodes of {found.devices_per_node} devices, which "
            f"the topology {found.name!r} does not join: it has no nics_per_node"
        )
    if ranks is None:
        ranks = range(world_size if world_size <= _ALL_UP_TO else 1)
    chosen = tuple(sorted(set(ranks)))
    bad = [rank for rank in chosen if not isinstance(rank, int) or not 0 <= rank < world_size]
    if bad or not 1 <= len(chosen) <= MAX_SIMULATED:
        what = f"the rank {bad[0]!r}" if bad else f"{len(chosen)} ranks"
        raise ValueError(
            f"simulate(): ranks must be 1 to {MAX_SIMULATED} of 0 to {world_size - 1}, got {what}"
        )
    return Simulation(world_size, found, chosen, os.fsdecode(topology), memory)


def _again(world_size: int, source: str, ranks: tuple[int, ...], memory: int | str | None) -> Simulation:
    return Simulation(world_size, topologies.load(source), ranks, source, memory)


def _run_rank(
    simulation: Simulation,
    rank: int,
    connection: Connection,
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Run as a rank, in a process of its own, and send what came of it."""
    try:
        connection.send(("done", simulation._plan(rank, connection, lambda: function(*args, **kwargs))))
    except BaseException as error:
        text = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = DryRunError(f"{type(error).__name__}: {error}")
        connection.send(("failed", (error, text)))
    finally:
        connection.close()


def _of_rank(rank: int, chip: str, device: int, plan: DryRunPlan, waited_ns: int) -> RankPlan:
    return RankPlan(
        rank=rank,
        chip=chip,
        capacity_bytes=plan.capacity_bytes(device),
        peak_memory_bytes=plan.peak_memory_bytes(device),
        peak_reserved_bytes=plan.peak_reserved_bytes(device),
        memory_by_category=plan.memory_by_category(device),
        seconds=plan.seconds,
        step_seconds=plan.step_seconds,
        step_busy_seconds=plan.step_busy_seconds,
        seconds_by_family=plan.seconds_by_family(),
        exposed_seconds=plan.exposed_seconds(device),
        waiting_seconds=waited_ns * 1e-9,
        collectives=tuple(plan.collectives()),
        out_of_memory=plan.out_of_memory,
    )

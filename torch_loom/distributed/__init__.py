"""Collectives between processes: the backend of ``torch.distributed`` for these devices, and clusters.

A collective is a command on a stream of its communicator (``csrc/distributed``): it returns at once, waits
for the current stream, and waiting for its work makes the current stream wait. Under the name cuda the
backend is called ``nccl``, elsewhere ``loom``; it is the default of the device type. :func:`simulate` runs
some of the ranks of a large cluster on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_loom.distributed.backend import BACKEND, make, register, traffic

if TYPE_CHECKING:
    from torch_loom.distributed.simulation import ClusterPlan, RankPlan, Simulation, simulate

__all__ = ["BACKEND", "ClusterPlan", "RankPlan", "Simulation", "make", "register", "simulate", "traffic"]

_SIMULATION = ("ClusterPlan", "RankPlan", "Simulation", "simulate")


def __getattr__(name: str) -> Any:
    # Imported when it is used: programs that simulate nothing need no chips here.
    if name in _SIMULATION:
        from torch_loom.distributed import simulation

        return getattr(simulation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

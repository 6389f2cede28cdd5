"""Collectives between processes: the backend of ``torch.distributed`` for these devices.

A collective is a command on a stream of its communicator (``csrc/distributed``): it returns at once, waits
for the current stream, and waiting for its work makes the current stream wait. Under the name cuda the
backend is called ``nccl``, elsewhere ``loom``; it is the default of the device type.
"""

from __future__ import annotations

from torch_loom.distributed.backend import BACKEND, make, register

__all__ = ["BACKEND", "make", "register"]

"""What has to be changed in Inductor itself, since it compares device types with names of its own."""

from __future__ import annotations

from typing import Any


def schedule_as_cpp(name: str) -> None:
    """Let the scheduler apply to the device the rules for C++ that it keeps for the CPU.

    It asks each node whether it is on the CPU where it means whether C++ is generated for it: reindexed
    loops are for Triton's kernels and fail with a TypeError in those of C++. pytorch/pytorch #189138.
    """
    from torch._inductor.scheduler import BaseSchedulerNode

    def is_cpu(self: Any) -> bool:
        device = self.get_device()
        return device is not None and device.type in ("cpu", name)

    BaseSchedulerNode.is_cpu = is_cpu  # type: ignore[method-assign]

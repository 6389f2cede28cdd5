"""What has to be changed in Inductor itself, since it compares device types with names of its own."""

from __future__ import annotations

import sys
from typing import Any


def is_no_gpu(name: str) -> None:
    """Let Inductor treat the device as one that it does not know, under the name cuda too.

    It takes cuda for a device of Triton's: it looks for Triton and lowers to what its kernels alone have.
    """
    from torch._inductor import config
    from torch._inductor.utils import GPU_TYPES

    if name in GPU_TYPES:
        GPU_TYPES.remove(name)
        setattr(config, f"{name}_backend", "cpp")


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


def generate_as_cpp(name: str) -> None:
    """Let the code generator answer C++ where it asks what is generated for the device.

    It takes what it does not know for Triton, whose kernels keep the dtype of an index elsewhere: the check
    of an index fails with an AssertionError in vectorised C++.
    """
    from torch._inductor import utils

    original: Any = utils.get_current_backend
    if getattr(original, "_loom_original", None) is not None:
        return

    def get_current_backend(device_type: str | None = None) -> Any:
        from torch._inductor.virtualized import V

        kind = device_type or V.graph.get_current_device_or_throw().type
        return original("cpu" if kind == name else kind)

    get_current_backend._loom_original = original  # type: ignore[attr-defined]
    # Others have imported the function by its name.
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch._inductor") and (
            vars(module).get("get_current_backend") is original
        ):
            module.get_current_backend = get_current_backend  # type: ignore[attr-defined]

"""accelerate: the default device, and mixed precision in float16, which it allows for a list of names."""

from __future__ import annotations

from importlib import import_module
from types import CodeType
from typing import Any

import torch

from torch_loom.patches.declared import LIBRARIES


def apply(name: str) -> None:
    """Make ``Accelerator()`` take the device, with ``mixed_precision="fp16"`` too.

    A process of a distributed job keeps what accelerate chooses: it knows backends by the same names.

    Args:
        name: of the devices.
    """
    accelerator: Any = import_module("accelerate.accelerator")
    state: Any = import_module("accelerate.state").PartialState
    found = state.default_device.fget

    def default_device(self: Any) -> torch.device:
        chosen: torch.device = found(self)
        is_there = chosen.type == "cpu" and torch.get_device_module(name).is_available()
        return torch.device(name) if is_there else chosen

    LIBRARIES.put(state, default_device=property(default_device, doc=state.default_device.__doc__))

    make_scaler = accelerator.get_grad_scaler

    def get_grad_scaler(distributed_type: Any = None, **options: Any) -> Any:
        if state().device.type != name or str(distributed_type) == "DistributedType.FSDP":
            return make_scaler(distributed_type, **options)
        return torch.amp.GradScaler(name, **options)

    LIBRARIES.put(accelerator, get_grad_scaler=get_grad_scaler)
    initialize = accelerator.Accelerator.__init__
    LIBRARIES.put(initialize, __code__=_with_name(initialize.__code__, name))


def _with_name(code: CodeType, name: str) -> CodeType:
    # The names that may have float16 are a constant of the function. A release without it says for itself
    # what it allows.
    constants = [
        (*each, name) if isinstance(each, tuple) and {"cuda", "xpu", "npu"} <= set(each) else each
        for each in code.co_consts
    ]
    return code.replace(co_consts=tuple(constants))

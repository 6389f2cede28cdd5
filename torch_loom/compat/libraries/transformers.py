"""transformers: ``TrainingArguments`` takes accelerate's device, and bfloat16 if the chip has it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from torch_loom.patches.declared import LIBRARIES


def apply(name: str) -> None:
    """Make ``TrainingArguments`` choose the device, and open with ``bf16=True`` where it has the dtype.

    Args:
        name: of the devices.
    """
    arguments: Any = import_module("transformers.training_args")
    has_bfloat16 = arguments.is_torch_bf16_gpu_available

    def is_torch_bf16_gpu_available() -> bool:
        module: Any = torch.get_device_module(name)
        return bool(has_bfloat16() or (module.is_available() and module.is_bf16_supported()))

    LIBRARIES.put(arguments, is_torch_bf16_gpu_available=is_torch_bf16_gpu_available)

    class_ = arguments.TrainingArguments
    cached = class_.__dict__["_setup_devices"]
    choose = cached.fget if hasattr(cached, "fget") else cached.func

    def _setup_devices(self: Any) -> torch.device:
        chosen: torch.device = choose(self)
        own: torch.device = self.distributed_state.device if self.distributed_state is not None else chosen
        if chosen.type != "cpu" or own.type != name or self.use_cpu:
            return chosen
        # As of a GPU: the first device, and one of them.
        self._n_gpu = 1
        torch.get_device_module(name).set_device(0)
        return torch.device(name, 0)

    replaced = type(cached)(_setup_devices)
    if hasattr(replaced, "__set_name__"):
        replaced.__set_name__(class_, "_setup_devices")
    LIBRARIES.put(class_, _setup_devices=replaced)

"""The virtual chips that devices of PyBuda stand on."""

from __future__ import annotations

import torch

from torch_loom.errors import PyBudaError


def device_type() -> str:
    """Return the name of PyTorch's device type that the chips have."""
    found = torch.accelerator.current_accelerator()
    if found is None:
        raise PyBudaError("there is no device: TORCH_LOOM_DEVICES says how many there are")
    return found.type


def num_chips_available() -> int:
    """Return the number of virtual chips."""
    return torch.accelerator.device_count()


def chip_name(index: int) -> str:
    """Return the name of a virtual chip, such as ``loom1`` or ``wormhole_b0``."""
    module = torch.get_device_module(device_type())
    return str(module.get_device_properties(index).extra["chip"])

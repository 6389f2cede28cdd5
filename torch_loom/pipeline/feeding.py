"""What a program pushes into a pipeline: checked, and copied to where it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.transfer import Parcel, parcel


def checked_inputs(
    tensors: tuple[torch.Tensor, ...], named: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return the inputs of a micro-batch, given in order or by name.

    Raises:
        TypeError: both, none, or something else than tensors.
    """
    if tensors and named:
        raise TypeError("inputs of a micro-batch come in order or by name, not both")
    values = tensors or tuple(named.values())
    if not values:
        raise TypeError("a micro-batch needs a tensor or more")
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"inputs of a pipeline are tensors, not {type(value).__name__}")
    return values


def store(channel: Channel[Any], device: torch.device, values: Sequence[torch.Tensor]) -> Parcel:
    """Copy the inputs of a micro-batch to where they wait in their queue.

    Copies, because what the program does to its tensors later is not the pipeline's input. Where the device
    has no memory for them, waits until entries are consumed, if the pipeline runs.

    Raises:
        torch.OutOfMemoryError: the device has no memory, and no entry will be released.
    """
    while True:
        held = channel.num_held
        try:
            return parcel([value.detach().to(device, copy=True) for value in values])
        except torch.OutOfMemoryError:
            if held == 0 or not channel.drained:
                raise
            channel.wait_below(held)

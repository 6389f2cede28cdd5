"""How long launches of Triton kernels take on the chip of a device, by the cost model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_loom.chips import rates
from torch_loom.chips.cost import launches
from torch_loom.errors import LoomError
from torch_loom.kernels.triton.device_chips import chip_of
from torch_loom.kernels.triton.library import header_of


def footprint(given: Sequence[Any], parameters: str, are_written: Sequence[bool]) -> tuple[float, float]:
    """Return bytes of the tensors among the arguments that are only read, and of those that are written."""
    tensors: dict[int, tuple[torch.Tensor, bool]] = {}
    addresses = [each for each, letter in zip(given, parameters, strict=True) if letter == "p"]
    for each, is_written in zip(addresses, are_written, strict=True):
        if isinstance(each, torch.Tensor):
            place = each.data_ptr()
            tensors[place] = (each, is_written or (place in tensors and tensors[place][1]))
    found = [0.0, 0.0]
    for tensor, is_written in tensors.values():
        found[is_written] += tensor.numel() * tensor.element_size()
    return found[0], found[1]


def seconds_of_choice(tuner: Any, arguments: Sequence[Any], config: Any, meta: dict[str, Any]) -> float:
    """Return what a launch with one configuration of an autotuner takes; infinity if it cannot be compiled.

    Args:
        tuner: Triton's autotuner.
        arguments: of the launch, by position.
        config: the configuration.
        meta: the other arguments, ``grid`` among them.
    """
    current = {**meta, **config.all_kwargs()}
    named = {**tuner.nargs, **current}
    try:
        # Makes its text and does not compile it for the host.
        kernel = tuner.fn.run(*arguments, **{**current, "warmup": True})
    except (LoomError, RuntimeError, ValueError):
        return math.inf
    header = header_of(kernel.asm["cpp"].decode())
    grid = meta["grid"](named) if callable(meta["grid"]) else meta["grid"]
    x, y, z = (*(int(each) for each in grid), 1, 1)[:3]
    kinds = kernel.src.signature
    given = [named.get(name) for name, kind in kinds.items() if kind != "constexpr"]
    if len(given) != len(header["parameters"]):
        return 0.0  # descriptors, which are several arguments
    outline, options = header["outline"], header["options"]
    numbers = {place: int(given[place]) for place in outline["numbers"] if isinstance(given[place], int)}
    device = torch.get_device_module(torch.accelerator.current_accelerator()).current_device()
    chip = chip_of(device)
    launched = launches.Launched(outline, options["num_warps"], options["num_stages"])
    work = launches.work_of(outline, (x, y, z), numbers)
    moved = footprint(given, header["parameters"], header["are_written"])
    return launches.launch_time(launched, work, moved, rates.model(chip), chip).total_ns * 1e-9

"""Prints, as JSON, the commands of the first float32 sample of each op, with its backward, or why it failed.

Run in a process of its own, since the driver is a setting: `python -m tests.conformance.commands [EVERY]`
takes one op of so many.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tests.commands import recorded_commands

from .cases import OpInfo, ops, samples
from .model import FAMILIES


def moved(value: Any) -> Any:
    """Returns a leaf of a sample on the device."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().to("loom").requires_grad_(value.requires_grad)


def run(info: OpInfo, sample: Any) -> None:
    """Calls the op, and differentiates what it returns."""
    results = pytree.tree_leaves(info(sample[0], *sample[1], **sample[2]))
    losses = [x.abs().sum() for x in results if isinstance(x, Tensor) and x.requires_grad]
    if losses:
        torch.autograd.backward(losses)


def commands_of(info: OpInfo) -> list[str] | str:
    """Returns the commands of an op's first sample, or the error it raised."""
    sample = next(samples(info, "float32", requires_grad=info.supports_autograd), None)
    if sample is None:
        return "there is no sample"
    on_device = pytree.tree_map(moved, (sample.input, sample.args, sample.kwargs))
    try:
        with recorded_commands() as commands:
            run(info, on_device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return commands


def main(every: int) -> None:
    """Writes one line to stdout."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {
        name: commands_of(info)
        for family in FAMILIES
        for name, info in list(ops(family).items())[::every]
        if torch.float32 in info.supported_dtypes("cpu")
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)

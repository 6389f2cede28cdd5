"""What a vendor's software reaches of its chips, where that is known from published rates of boards.

``stacks.json`` has for each stack the seconds that an epoch takes to start, and by chip how many times as
long as predicted its kernels work and the seconds that an epoch adds to each sample.
``python -m benchmarks.boards --write-stacks`` fits them to half of the published rates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torch_loom.chips.chip import Chip, load
from torch_loom.chips.rates import rates

FILE = Path(__file__).with_name("stacks.json")


class Run(NamedTuple):
    """A predicted run of one chip.

    Attributes:
        samples: that it takes.
        work_seconds: that kernels work, without gaps between epochs.
        starts: epochs that it starts; a part of them where queues hold several runs.
        host_seconds: that the host's link or its calls need at least.
    """

    samples: int
    work_seconds: float
    starts: float
    host_seconds: float


class OnChip(NamedTuple):
    """How a stack's kernels differ from predicted ones: a factor, and seconds for each epoch and sample."""

    factor: float
    sample_seconds: float


class Stack(NamedTuple):
    """How runs under a stack differ from predicted ones: seconds that an epoch takes to start; by chip."""

    epoch_seconds: float
    chips: Mapping[str, OnChip]

    def samples_per_second(self, chip: str, run: Run) -> float | None:
        """Return the rate of runs that follow one another; None for a chip that no rate is known of."""
        kernels = self.chips.get(chip)
        if kernels is None:
            return None
        epochs = run.starts * (self.epoch_seconds + run.samples * kernels.sample_seconds)
        seconds = max(kernels.factor * run.work_seconds + epochs, run.host_seconds)
        return run.samples / seconds if seconds else 0.0


@cache
def stacks() -> Mapping[str, Stack]:
    """Return the stacks by name."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: Stack(stack["epoch_seconds"], {chip: OnChip(**each) for chip, each in stack["chips"].items()})
        for name, stack in content.items()
    }


def reached(chip: Chip, run: Run) -> dict[str, float]:
    """Return the samples a second of each stack that runs on a chip as it is shipped; others have none."""
    found = {
        name: rate
        for name, stack in stacks().items()
        if (rate := stack.samples_per_second(chip.name, run)) is not None
    }
    return found if found and rates(chip) == rates(load(chip.name)) else {}

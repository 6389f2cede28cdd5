"""What a vendor's software reaches of its chips, where that is known from published rates of boards.

``stacks.json`` has for each stack the seconds that an epoch takes to start, and by chip how many times the
predicted time its runs take and the seconds that an epoch adds to each sample.
``python -m benchmarks.boards --write-stacks`` fits them to half of the published rates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("stacks.json")


class Reached(NamedTuple):
    """What a stack reaches of a chip: so many times the predicted time, and seconds for an epoch's sample."""

    factor: float
    sample_seconds: float


class Stack(NamedTuple):
    """How runs under a stack differ from predicted ones: seconds that an epoch takes to start, and chips."""

    epoch_seconds: float
    chips: Mapping[str, Reached]

    def seconds(self, chip: str, predicted: float, starts: float, samples: int) -> float | None:
        """Return the seconds of a run, or None for a chip that no rate is known of.

        Args:
            predicted: seconds of a run, as the chip's figures say.
            starts: epochs that a run starts.
            samples: of a run.
        """
        one = self.chips.get(chip)
        if one is None:
            return None
        return one.factor * predicted + starts * (self.epoch_seconds + samples * one.sample_seconds)


@cache
def stacks() -> Mapping[str, Stack]:
    """Return the stacks by name."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: Stack(one["epoch_seconds"], {chip: Reached(**each) for chip, each in one["chips"].items()})
        for name, one in content.items()
    }

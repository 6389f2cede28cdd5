"""What the C++ core is given of a chip."""

from __future__ import annotations

from torch_loom import _C
from torch_loom.chips.chip import load


def load_for_core(chip: str) -> _C.Chip:
    """Read a chip and return what the core keeps of it.

    Args:
        chip: the name of a shipped chip, or the path of a description.

    Raises:
        ChipError: there is no such chip, or its description cannot be used.
    """
    described = load(chip)
    return _C.Chip(
        name=described.name,
        description=described.description,
        memory_bytes=described.memory_bytes,
        lazy_memory=described.memory_policy == "lazy",
        dtypes=described.dtypes,
        amp_dtypes=described.amp_dtypes,
        capability_major=described.capability_major,
        capability_minor=described.capability_minor,
        num_cores=described.num_cores,
        clock_mhz=described.clock_mhz,
    )

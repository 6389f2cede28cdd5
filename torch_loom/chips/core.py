"""What the devices are given of a chip: the C++ core its part, Python the figures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch

from torch_loom import _C
from torch_loom.chips.chip import Chip, load, with_host
from torch_loom.chips.description import shown
from torch_loom.errors import ChipError

if TYPE_CHECKING:
    from torch_loom.chips.estimator import Estimator


# What makes a tensor of numbers without computing on one; fills, views and copies are native to every chip.
_CONSTRUCTORS = ("arange", "range", "linspace", "logspace", "eye")
# What the core keeps of a chip for CUDA's runtime library.
SIZES = (
    *("max_threads_per_core", "registers_per_core", "shared_memory_per_core_bytes"),
    *("shared_memory_per_block_optin_bytes", "l2_cache_bytes", "memory_clock_mhz", "memory_bus_bits"),
)


def _check_op(chip: str, op: str) -> None:
    name, _, overload = op.partition(".")
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    if not schemas or (
        overload and overload not in {schema.overload_name or "default" for schema in schemas}
    ):
        raise ChipError(
            f"{chip}: native_ops: there is no op {shown(op)}. Allowed: names in PyTorch's torch.ops.aten."
        )


class Figures(dict[str, float]):
    """All figures of a chip by name; 0: not known.

    Attributes:
        chip: the description that they are from.
        product_name: what the card calls itself; empty where that is not known.
    """

    def __init__(self, chip: Chip) -> None:
        values = {entry.name: getattr(chip, entry.name) for entry in fields(chip)}
        super().__init__((name, value) for name, value in values.items() if isinstance(value, (int, float)))
        self.chip = chip
        self.product_name = chip.product_name


def load_for_core(chip: str, executes: bool = True) -> tuple[_C.Chip, Figures]:
    """Read a chip and return what the core keeps of it, and all of its figures by name; 0: not known.

    Args:
        chip: the name of a shipped chip, or the path of a description.
        executes: False for a stand-in for it, which makes tensors and computes nothing.

    Raises:
        ChipError: there is no such chip, or its description cannot be used.
    """
    described = with_host(load(chip))
    for op in described.native_ops or ():
        _check_op(chip, op)
    own = described if executes else replace(described, native_ops=_CONSTRUCTORS)
    return for_core(own), Figures(described)


@functools.lru_cache(maxsize=32)
def for_core(described: Chip) -> _C.Chip:
    """Return what the core keeps of a chip."""
    return _C.Chip(
        name=described.name,
        description=described.description,
        memory_bytes=described.total_memory_bytes,
        lazy_memory=described.memory_policy == "lazy",
        dtypes=described.dtypes,
        amp_dtypes=described.amp_dtypes,
        native_ops=described.native_ops,
        capability_major=described.capability_major,
        capability_minor=described.capability_minor,
        num_cores=described.num_cores,
        clock_mhz=described.clock_mhz,
        fused_kernels=described.fused_kernels,
        deterministic=described.deterministic,
        is_gpu=bool(described.product_name),
        random_grid=_random_grid(described),
        sizes={name: int(getattr(described, name)) for name in SIZES},
    )


def _random_grid(described: Chip) -> tuple[int, int, bool, bool]:
    """Return what decides CUDA's random numbers: cores, threads of each, vectorised dropout, made by NVIDIA.

    PyTorch's builds of today are for cards from Volta on. What is public of earlier ones was drawn by
    versions whose dropout was not vectorised yet (pytorch#25690).
    """
    is_nvidia = bool(described.product_name) and described.warp_size == 32
    is_early = is_nvidia and described.capability_major < 7
    return max(described.num_cores, 1), described.max_threads_per_core or 2048, not is_early, is_nvidia


def estimator(figures_of: Callable[[int], Mapping[str, float]]) -> Estimator:
    """Return the estimator; ``figures_of(device)`` gives the figures of its chip."""
    # Here: only a simulated clock needs it.
    from torch_loom.chips.estimator import Estimator

    def chip_of(device: int) -> Chip:
        figures = figures_of(device)
        assert isinstance(figures, Figures), "load_for_core() returns them"
        return figures.chip

    return Estimator(chip_of)

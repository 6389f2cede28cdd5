"""What the devices are given of a chip: the C++ core its part, Python the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import torch

from torch_loom import _C
from torch_loom.chips.chip import load, shown
from torch_loom.errors import ChipError


def _check_op(chip: str, op: str) -> None:
    name, _, overload = op.partition(".")
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    if not schemas or (
        overload and overload not in {schema.overload_name or "default" for schema in schemas}
    ):
        raise ChipError(
            f"{chip}: native_ops: there is no op {shown(op)}. Allowed: names in PyTorch's torch.ops.aten."
        )


def load_for_core(chip: str) -> tuple[_C.Chip, Mapping[str, float]]:
    """Read a chip and return what the core keeps of it, and all of its figures by name; 0: not known.

    Args:
        chip: the name of a shipped chip, or the path of a description.

    Raises:
        ChipError: there is no such chip, or its description cannot be used.
    """
    described = load(chip)
    for op in described.native_ops or ():
        _check_op(chip, op)
    core = _C.Chip(
        name=described.name,
        description=described.description,
        memory_bytes=described.memory_bytes,
        lazy_memory=described.memory_policy == "lazy",
        dtypes=described.dtypes,
        amp_dtypes=described.amp_dtypes,
        native_ops=described.native_ops,
        capability_major=described.capability_major,
        capability_minor=described.capability_minor,
        num_cores=described.num_cores,
        clock_mhz=described.clock_mhz,
        fused_kernels=described.fused_kernels,
    )
    values = {entry.name: getattr(described, entry.name) for entry in fields(described)}
    figures = {name: value for name, value in values.items() if isinstance(value, (int, float))}
    return core, figures

"""Writes docs/cuda_values.md: which ops have CUDA's values, and which draw CUDA's random numbers."""

from __future__ import annotations

from tools.blocks import markdown_table
from torch_loom.ops.cuda_values import CUDA_VALUES
from torch_loom.ops.table import FAMILIES

FILE = "docs/cuda_values.md"


def page() -> str:
    """Return the page."""
    values = [
        [", ".join(f"`{op}`" for op in value.ops), value.where, value.value, value.source]
        for value in CUDA_VALUES
    ]
    drawing = sorted({op for family in FAMILIES for op in family.facts.get("draws", "").split()})
    return f"""# CUDA's values

Written by `make docs` from `torch_loom/ops`; do not edit. Under the name `cuda` these ops return what CUDA's
kernels return, and not what the CPU's do.

{markdown_table(["op", "calls", "value", "source"], values)}

## Ops that draw random numbers

Each moves the offset of its generator as CUDA's kernel does, in dry runs too; other random functions are
made of these. Which numbers they draw: [cuda.md](cuda.md#random-numbers).

{", ".join(f"`{op}`" for op in drawing)}
"""

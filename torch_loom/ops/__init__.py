"""Every op declared once: how it costs, and what the runtime must know of it.

The entries stand in ``families``; what each field means, in ``model``. From them ``python -m tools.op_table``
writes what C++ needs (the folders ``generated`` of ``csrc``). An op without an entry costs the bytes it
moves, and nothing more is known of it. Imports nothing of PyTorch.
"""

from torch_loom.ops.model import FACTS, FUSED_KERNELS, SHAPE_CLASSES, Family
from torch_loom.ops.table import (
    DEFAULT,
    FAMILIES,
    PUBLIC_NAMES,
    facts_of,
    family_of,
    fused_kernel_of,
    has_entry,
)

__all__ = [
    "DEFAULT",
    "FACTS",
    "FAMILIES",
    "FUSED_KERNELS",
    "PUBLIC_NAMES",
    "SHAPE_CLASSES",
    "Family",
    "facts_of",
    "family_of",
    "fused_kernel_of",
    "has_entry",
]

"""From an op to the kernels that a GPU-like chip's libraries run for it.

What is written here is how the libraries split ops, not how fast they are: a bias gradient is a reduction
across rows, a convolution of channels-first half-precision operands converts their layout, an optimizer's
list is cut into chunks. The op table (torch_loom/ops) says which function of the lowerings an op goes by.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from torch_loom.chips.cost.lowerings import data, products, rows
from torch_loom.chips.cost.records import Kernel, Op
from torch_loom.ops import Family, family_of

# All arguments that are read here, beside tensors: ops that differ in others have the same cost.
ATTRIBUTES = (
    *("dim", "exponent", "groups", "is_causal", "kernel_size", "normalized_shape", "output_mask", "stride"),
    *("train", "training", "transposed"),
    "launch",  # of a program's own kernel: launches.py
)

_FILES = {"data": data, "products": products, "rows": rows}


def lowering_of(family: Family) -> Callable[[Op], list[Kernel]]:
    """Return what makes kernels of a family's ops."""
    return _named(family.kernels)


@cache
def _named(function_of_file: str) -> Callable[[Op], list[Kernel]]:
    file, _, function = function_of_file.partition(".")
    found: Callable[[Op], list[Kernel]] = getattr(_FILES[file], function)
    return found


def lower(op: Op) -> list[Kernel]:
    """Return the kernels of an op, in the order in which they run; none for a view or an empty result."""
    for tensor in op.inputs + op.outputs:
        if 0 not in tensor.shape:
            return [kernel for kernel in _lowering_of_op(op.name)(op) if kernel.launches]
    return []


@cache
def _lowering_of_op(name: str) -> Callable[[Op], list[Kernel]]:
    return data.foreach if name.startswith("_foreach_") else lowering_of(family_of(name))

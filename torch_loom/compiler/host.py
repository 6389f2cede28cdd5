"""Which ops of a graph a chip does not do itself."""

from __future__ import annotations

import torch
from torch import fx

from torch_loom import _C
from torch_loom.chips import Chip
from torch_loom.chips.core import for_core
from torch_loom.compiler.ir import op_name, tensors_of, value_of


def host_reason(node: fx.Node, chip: Chip, known: dict[object, str] | None = None) -> str:
    """Return why a node's op stays on the host: a sentence; empty where the chip does it.

    The rule is that of eager's fallback (csrc/torch/ops/fallback.cpp).

    Args:
        known: the answers for this chip by op and dtypes, which are added.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return ""
    used = {value.dtype for operand in node.all_input_nodes for value in tensors_of(value_of(operand))}
    key = (node.target, frozenset(used))
    known = {} if known is None else known
    if key not in known:
        known[key] = _reason(node, chip, used)
    return known[key]


def _reason(node: fx.Node, chip: Chip, used: set[torch.dtype]) -> str:
    schema = node.target._schema  # type: ignore[union-attr]
    dtypes = [str(dtype).removeprefix("torch.") for dtype in used]
    foreign = _C.fallback_reason(for_core(chip), schema.name, schema.overload_name, dtypes)
    if foreign is None:
        return ""
    if not foreign:
        return f"{op_name(node)} is not among the native_ops of {chip.name}"
    return f"{op_name(node)} has operands of {foreign}, which is not among the dtypes of {chip.name}"

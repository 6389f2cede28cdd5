"""Which ops of a graph a chip does not do itself."""

from __future__ import annotations

import torch
from torch import fx

from torch_loom.chips import Chip
from torch_loom.compiler.ir import op_name, tensors_of, value_of
from torch_loom.ops import facts_of


def host_reason(node: fx.Node, chip: Chip) -> str:
    """Return why a node's op stays on the host: a sentence; empty where the chip does it.

    The same rule as eager's fallback: the chip's list of ops, and its dtypes. What moves data is native.
    """
    name = op_name(node)
    if not isinstance(node.target, torch._ops.OpOverload) or "moves_data" in facts_of(name):
        return ""
    if node.target.is_view:
        return ""
    if chip.native_ops is not None and not _is_native(name, chip.native_ops):
        return f"{name} is not among the native_ops of {chip.name}"
    used = {one.dtype for operand in node.all_input_nodes for one in tensors_of(value_of(operand))}
    # Beside floating-point operands, those of other dtypes are indices and masks, which any chip reads.
    floating = {dtype for dtype in used if dtype.is_floating_point or dtype.is_complex}
    names = sorted(str(dtype).removeprefix("torch.") for dtype in floating or used)
    if foreign := [dtype for dtype in names if dtype not in chip.dtypes]:
        return f"{name} has operands of {foreign[0]}, which is not among the dtypes of {chip.name}"
    return ""


def _is_native(name: str, native: tuple[str, ...]) -> bool:
    base, _, overload = name.partition("::")[2].partition(".")
    forms = {base, base.removesuffix("_"), f"{base}.{overload or 'default'}"}
    return not forms.isdisjoint(native)

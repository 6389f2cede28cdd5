"""The pass that runs small ops in the kernel of the op that makes their operand."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torch_loom.compiler.ir import CONVOLUTIONS, computes, facts, op_name, shape_class, value_of
from torch_loom.compiler.passes.runner import Context

# What a kernel can do to a tile while it still holds it.
_SMALL = ("elementwise", "random")
# What needs a whole row of tiles: only at the highest level of optimisation.
_ROWS = ("normalisation", "softmax")
_PADS = ("aten::pad", "aten::constant_pad_nd")
# Operands of one fused kernel, as PyBuda's limit.
MAX_INPUTS = 16


def fuse(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Mark bias, activation, residual and, at level 3, normalisation as parts of their producer's kernel.

    Zeros around an image are no kernel where convolutions alone read them.

    Numbers stay: the nodes still run one by one in emulation, and count as one op on the chip.
    """
    if not context.options.enable_auto_fusing:
        return graph
    _read_past_edges(graph)
    kinds = _SMALL + (_ROWS if context.options.backend_opt_level >= 3 else ())
    operands: dict[str, set[fx.Node]] = {}
    roots: dict[fx.Node, fx.Node] = {}  # of the nodes that have been fused
    saved = set(context.options.op_intermediates_to_save)
    order = {node: number for number, node in enumerate(graph.graph.nodes)}
    for node in graph.graph.nodes:
        if not computes(node):
            continue
        operands[node.name] = set(node.all_input_nodes)
        if shape_class(node) not in kinds or facts(node).host_reason or facts(node).tags.get("alone"):
            continue
        for producer in reversed(_producers(node)):
            root = roots.get(producer, producer)
            own = operands[root.name] | (operands[node.name] - {producer})
            if (
                root.name not in saved
                and not facts(root).host_reason
                and _is_only_user(producer, node)
                and len(own) <= MAX_INPUTS
                and _is_ready(node, root, roots, order)
                and _is_dense(node)
            ):
                facts(node).fused_into = root.name
                roots[node] = root
                operands[root.name] = own
                break
    return graph


def _read_past_edges(graph: fx.GraphModule) -> None:
    """Mark paddings by zeros as operands of the convolutions that read them, as a convolution's own is."""
    for node in graph.graph.nodes:
        if op_name(node) in _PADS and not _pad_value(node) and not facts(node).host_reason:
            readers = set(node.users)
            if readers and all(_is_image_of(node, reader) for reader in readers):
                facts(node).tags["operand"] = True


def _pad_value(node: fx.Node) -> Any:
    """Return what a padding writes; a mode that repeats the image is no number."""
    if op_name(node) == "aten::pad":
        mode = node.args[2] if len(node.args) > 2 else node.kwargs.get("mode", "constant")
        value = node.args[3] if len(node.args) > 3 else node.kwargs.get("value")
        return mode if mode != "constant" else value
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("value", 0)


def _is_image_of(node: fx.Node, reader: fx.Node) -> bool:
    return (
        op_name(reader).startswith(CONVOLUTIONS)
        and reader.args[:1] == (node,)
        and node not in reader.args[1:]
        and not facts(reader).host_reason
    )


def _producers(node: fx.Node) -> list[fx.Node]:
    """The ops whose results a node reads without a view between."""
    found = []
    for source in node.all_input_nodes:
        if source.op == "call_function" and getattr(source.target, "__name__", "") == "getitem":
            inner = source.args[0]
            if isinstance(inner, fx.Node) and source.args[1] == 0 and computes(inner):
                found.append(inner)
        elif computes(source):
            found.append(source)
    return found


def _is_ready(node: fx.Node, root: fx.Node, roots: dict[fx.Node, fx.Node], order: dict[fx.Node, int]) -> bool:
    """Whether what a node reads of other kernels is made before the kernel of ``root`` begins."""
    for source in node.all_input_nodes:
        while source.op == "call_function" and not computes(source) and source.all_input_nodes:
            source = source.all_input_nodes[0]
        if order[roots.get(source, source)] > order[root]:
            return False
    return True


def _is_only_user(producer: fx.Node, node: fx.Node) -> bool:
    users = set(producer.users)
    parts = {user for user in users if getattr(user.target, "__name__", "") == "getitem"}
    readers = (users - parts) | {reader for part in parts for reader in part.users}
    return readers == {node}


def _is_dense(node: fx.Node) -> bool:
    value = value_of(node)
    first = value[0] if isinstance(value, tuple | list) and value else value
    return isinstance(first, torch.Tensor) and first.dim() >= 1

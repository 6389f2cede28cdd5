"""Ops of a graph that write to a tensor which nothing else reads: the same ops with a result of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torch_loom.compiler.ir import shape_class, value_of

_MAKERS = ("matmul", "convolution", "normalisation")
"""Classes of ops that always make a new tensor, composite as they are."""


def without_writes(graph: fx.Graph) -> None:
    """Rewrite ``a.add_(b)``, and any other op in place, where ``a`` is new and has no other reader.

    Making a graph functional otherwise takes another trace, as long as the first. What is left as it is needs
    that.
    """
    writers = [node for node in graph.nodes if node.op == "call_function" and _is_mutable(node.target)]
    if not writers:
        return
    _drop_dropouts(graph)
    for node in writers:
        made = _without_write(node)
        if made is not None:
            node.target = made


def _is_mutable(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _drop_dropouts(graph: fx.Graph) -> None:
    """A dropout in ``eval()`` returns its operand itself, which PyTorch's next trace does not know."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default):
        if node.args[2] is False and not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _without_write(node: fx.Node) -> Any:
    """The op that does the same to a tensor of its own; None: it is none, or the operand may be read."""
    first = node.args[0] if node.args else None
    if not isinstance(first, fx.Node) or set(first.users) != {node} or not _is_new(first):
        return None
    own = value_of(first)
    values = [value_of(each) for each in node.all_input_nodes]
    if any(not isinstance(value, torch.Tensor) or value.dtype != own.dtype for value in values):
        return None
    return _functional(node.target)


def _is_new(node: fx.Node) -> bool:
    """Whether an op's result is a tensor of its own, and not an operand or in the memory of one."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    has_aliases = any(
        each.alias_info is not None for each in (*target._schema.arguments, *target._schema.returns)
    )
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        str(target._name), "CompositeImplicitAutograd"
    )
    return not has_aliases and (not is_composite or shape_class(node) in _MAKERS)


def _functional(target: Any) -> Any:
    """``aten.add.Tensor`` for ``aten.add_.Tensor``; None: there is none with the same arguments."""
    namespace, _, name = target._schema.name.partition("::")
    packet = (
        getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None) if name[-1:] == "_" else None
    )
    made = getattr(packet, target._overloadname, None)
    if made is None or made._schema.is_mutable:
        return None
    wanted, given = (
        [(argument.name, str(argument.type)) for argument in op._schema.arguments] for op in (made, target)
    )
    return made if wanted == given else None

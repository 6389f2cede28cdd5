"""Passes that bring a graph to one form: nothing unused, nothing that does nothing."""

from __future__ import annotations

import torch
from torch import fx

from torch_loom.compiler.ir import facts, module_of, source_of
from torch_loom.compiler.passes.runner import Context

_RANDOM = torch.Tag.nondeterministic_seeded


def annotate_sources(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Note which line of the program and which module each node comes from."""
    for node in graph.graph.nodes:
        own = facts(node)
        own.source, own.module = source_of(node), module_of(node)
    return graph


def canonicalise(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Remove unused nodes, conversions that change nothing, and duplicates of pure ops."""
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default and not node.users:
            # Shapes, dtypes and devices are those of the graph, which the export has checked.
            graph.graph.erase_node(node)
            continue
        if node.target is torch.ops.aten._to_copy.default and _is_same(node):
            # _to_copy is a new tensor; in a functional graph, only the caller can tell the two apart.
            if any(user.op == "output" for user in node.users):
                continue
            node.replace_all_uses_with(node.args[0])
    _share_equal(graph.graph)
    graph.graph.eliminate_dead_code(is_impure_node=_is_impure)
    graph.recompile()
    return graph


def _is_same(node: fx.Node) -> bool:
    source = node.args[0]
    if not isinstance(source, fx.Node) or node.kwargs.get("memory_format") is not None:
        return False
    before, after = source.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    return (before.dtype, before.device, before.stride(), before.layout) == (
        *(after.dtype, after.device, after.stride(), after.layout),
    )


def _is_impure(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False if target.__class__.__module__ == "builtins" else node.is_impure()
    # An unused draw still advances the generator, as in eager.
    return target._schema.is_mutable or _RANDOM in target.tags or not target._schema.returns


def _share_equal(graph: fx.Graph) -> None:
    seen: dict[object, fx.Node] = {}
    for node in list(graph.nodes):
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            continue
        if _is_impure(node) or any(user.op == "output" for user in node.users):
            continue
        try:
            key = (target, _frozen(node.args), _frozen(node.kwargs))
            first = seen.setdefault(key, node)
        except TypeError:
            continue
        if first is not node and target.namespace == "aten" and not _makes_contents(target):
            node.replace_all_uses_with(first)


def _makes_contents(target: torch._ops.OpOverload) -> bool:
    return "empty" in target._schema.name


def _frozen(value: object) -> object:
    if isinstance(value, tuple | list):
        return (type(value).__name__, *(_frozen(each) for each in value))
    if isinstance(value, dict):
        return tuple(sorted((key, _frozen(each)) for key, each in value.items()))
    if isinstance(value, slice):
        return ("slice", _frozen(value.start), _frozen(value.stop), _frozen(value.step))
    if isinstance(value, bool | int | float):
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
        return (type(value).__name__, repr(value))
    hash(value)
    return value

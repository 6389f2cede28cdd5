"""The pass that leaves out what keeps a softmax from overflowing."""

from __future__ import annotations

from torch import fx, ops

from torch_loom.compiler.ir import facts, op_name, value_of
from torch_loom.compiler.passes.runner import Context

_NAMES = ("aten::softmax.int", "aten::_softmax", "aten::_safe_softmax")


def plain_softmax(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Compute softmax as exponentials over their sum, not less the maximum, if not ``enable_stable_softmax``.

    One reduction less, but numbers above 88 overflow in float32. Attention keeps its own.
    """
    if context.options.enable_stable_softmax:
        return graph
    aten = ops.aten
    for node in list(graph.graph.nodes):
        if op_name(node) not in _NAMES or facts(node).host_reason:
            continue
        source, dim = node.args[0], node.args[1]
        value = value_of(node)
        with graph.graph.inserting_before(node):
            if value_of(source).dtype != value.dtype:
                source = graph.graph.call_function(aten._to_copy.default, (source,), {"dtype": value.dtype})
                source.meta["val"] = value
            power = graph.graph.call_function(aten.exp.default, (source,))
            power.meta["val"] = value
            total = graph.graph.call_function(aten.sum.dim_IntList, (power, [dim], True))
            total.meta["val"] = value.sum(dim, keepdim=True)
            result = graph.graph.call_function(aten.div.Tensor, (power, total))
            result.meta["val"] = value
        for each in (source, power, total, result):
            if each.op == "call_function" and "loom" not in each.meta:
                facts(each).source, facts(each).module = facts(node).source, facts(node).module
        node.replace_all_uses_with(result)
        graph.graph.erase_node(node)
    graph.recompile()
    return graph

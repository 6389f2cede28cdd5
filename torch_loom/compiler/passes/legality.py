"""The legality check: what holds of a graph between any two passes."""

from __future__ import annotations

from torch import fx

from torch_loom.compiler.ir import KEY, computes, op_name
from torch_loom.errors import IllegalGraphError


def check(graph: fx.GraphModule, after: str) -> None:
    """Check a graph.

    Every node is defined before it is used, ops mutate nothing, results have their metadata, and what is
    fused into a node's kernel is fused into a node that exists.

    Raises:
        IllegalGraphError: it is not so; the message names the pass and the node.
    """
    try:
        graph.graph.lint()
    except RuntimeError as error:
        raise IllegalGraphError(f"after the pass {after!r}: {error}") from error
    names = {node.name for node in graph.graph.nodes}
    for node in graph.graph.nodes:
        if node.op == "call_function" and "val" not in node.meta:
            raise IllegalGraphError(f"after the pass {after!r}: {node.name} has no metadata of its result")
        if computes(node) and node.target._schema.is_mutable:
            raise IllegalGraphError(f"after the pass {after!r}: {node.name} ({op_name(node)}) mutates")
        own = node.meta.get(KEY)
        if own is not None and own.fused_into and own.fused_into not in names:
            raise IllegalGraphError(
                f"after the pass {after!r}: {node.name} is fused into {own.fused_into}, which does not exist"
            )

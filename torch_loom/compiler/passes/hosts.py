"""The passes that keep on the host what a chip does not do itself."""

from __future__ import annotations

from torch import fx

from torch_loom.compiler import overrides
from torch_loom.compiler.host import host_reason
from torch_loom.compiler.ir import computes, facts, named
from torch_loom.compiler.passes.runner import Context
from torch_loom.errors import HostOpError


def mark_host_ops(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Mark nodes whose op or dtype the chip lacks.

    Raises:
        HostOpError: there are some, under ``host_ops="error"``.
    """
    found = []
    chosen = overrides.current()
    reasons: dict[object, str] = {}
    for node in graph.graph.nodes:
        if not computes(node):
            continue
        own = facts(node)
        own.host_reason = host_reason(node, context.chip, reasons)
        if chosen.hosts and chosen.type_of(named(node)) in chosen.hosts:
            own.host_reason = "the configuration keeps ops of this type on the host"
        if facts(node).host_reason:
            found.append(f"{node.name}: {facts(node).host_reason}")
    if found and context.options.host_ops == "error":
        raise HostOpError(
            'host_ops="error", but these ops cannot run on the chip:\n  '
            + "\n  ".join(found)
            + '\nTake host_ops="host" to keep them on the host, or another chip.'
        )
    context.notes += found
    return graph

"""The pass that computes once what depends on parameters alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torch_loom.compiler.calls import part_of
from torch_loom.compiler.ir import computes, facts, placed
from torch_loom.compiler.passes.runner import Context


def evaluate_constants(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Compute what depends on frozen parameters alone, by the kernels that would compute it at each run.

    Views are left as they are: a kernel may take another way for a tensor of other strides.
    """
    if not context.options.enable_consteval or not context.parameters:
        return graph
    known = {name: each for name, each in context.parameters.items() if name not in context.updated}
    folded: dict[fx.Node, None] = {}
    evaluated = []
    with torch.no_grad():
        for node in graph.graph.nodes:
            if node.op != "call_function" or not _can_fold(node, known):
                continue
            known[node.name] = _evaluated(node, known)
            evaluated.append(node)
            if computes(node) and isinstance(known[node.name], torch.Tensor):
                folded[node] = None
            for source in node.all_input_nodes:
                if source in folded and source.users.keys() <= folded.keys():
                    known[source.name] = None  # its memory is the next one's
    # Only those that something else reads, through views or not; the others go with their users.
    gone = dict(folded)
    for node in reversed(evaluated):
        if node.users.keys() <= gone.keys():
            gone[node] = None
    kept = [node for node in folded if not node.users.keys() <= gone.keys()]
    context.folded = (part_of(graph.graph, kept), [f"const_{node.name}" for node in kept])
    for node in kept:
        with graph.graph.inserting_before(node):
            constant = graph.graph.create_node("placeholder", f"const_{node.name}", name=f"const_{node.name}")
        constant.name = f"const_{node.name}"
        constant.meta.update(val=node.meta["val"])
        facts(constant).tags["constant"] = True
        context.parameters[constant.name] = known[node.name]
        node.replace_all_uses_with(constant)
    if folded:
        context.notes.append(f"{len(folded)} ops of parameters alone are computed once")
        _sort_placeholders(graph.graph)
        for node in reversed(evaluated):
            if not node.users:
                graph.graph.erase_node(node)
        graph.recompile()
    return graph


def _can_fold(node: fx.Node, known: dict[str, Any]) -> bool:
    sources = node.all_input_nodes
    if not sources or any(source.name not in known for source in sources):
        return False
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags
    return getattr(target, "__name__", "") == "getitem"


def _evaluated(node: fx.Node, known: dict[str, Any]) -> Any:
    def value(node: fx.Node) -> Any:
        if node.op != "placeholder":
            return known[node.name]
        # Of a module elsewhere the device has a copy as long as something is computed of it.
        return placed(known[node.name], node.meta["val"].device)

    args: Any
    kwargs: Any
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
    source, numerics = node.all_input_nodes[0], torch.ops.loom_numerics
    if node.target is numerics.quantize.default and args[0].device != known[source.name].device:
        # The copy becomes the result: a model's weights need no memory twice.
        copy: torch.Tensor = args[0].requires_grad_(False)
        numerics.quantize_(copy, *args[1:], **{"op": "quantize", **kwargs})
        return copy
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _sort_placeholders(graph: fx.Graph) -> None:
    """Placeholders stand before all other nodes."""
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    if first is None:
        return
    for node in list(graph.nodes):
        if node.op == "placeholder" and node > first:
            first.prepend(node)

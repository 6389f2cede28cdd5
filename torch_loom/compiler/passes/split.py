"""The pass that masks the weights of products once, instead of at each run."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torch_loom.compiler.ir import facts, value_of
from torch_loom.compiler.passes.formats import _format_of
from torch_loom.compiler.passes.runner import Context
from torch_loom.numerics import DataFormat, MathFidelity
from torch_loom.numerics._ops import WHOLE

_SRC_B, _SRC_A = 0, 1  # the places of operands and weights in the matrix unit
_BITS_OF_SRC_A = 10  # that all but LoFi see


def split_products(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Let products with weights see masked operands whole: the same bits, and the masks of weights constants.

    HiFi3 with sums in Float32, whose second product is of the low bits that the first leaves out, becomes two
    products and their sum. A plan takes both for the one op that they are on a chip.
    """
    if context.options.numerics != "formats" or not context.options.enable_consteval:
        return graph
    ops = torch.ops.loom_numerics
    places = {ops.linear.default: 3, ops.matmul.default: 2, ops.convolution.default: 9}
    constants = set(context.parameters) - context.updated
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        sources = node.all_input_nodes
        if sources and all(source.name in constants for source in sources):
            constants.add(node.name)
        elif node.target in places and node.args[1].name in constants:
            _split(graph.graph, node, places[node.target])
    graph.recompile()
    return graph


def _split(graph: fx.Graph, node: fx.Node, place: int) -> None:
    """Rewrite a product whose fidelity is its argument at ``place``, before the format of its sums."""
    given: tuple[Any, ...] = node.args
    x, weight, *between = given[:place]
    number, accumulate, *formats = given[place:]
    if number == WHOLE or DataFormat(accumulate).is_integer or len(formats) > 2 or True in formats:
        return
    fidelity = MathFidelity(number)
    with graph.inserting_before(node):
        seen = _masked(graph, node, x, _SRC_B, fidelity)
        name = _format_of(weight)
        is_seen = fidelity is not MathFidelity.LoFi and name and DataFormat[name].significand_bits
        if not is_seen or is_seen > _BITS_OF_SRC_A:
            weight_seen = _masked(graph, node, weight, _SRC_A, fidelity)
        else:
            weight_seen = weight
        if fidelity is not MathFidelity.HiFi3:
            node.args = (seen, weight_seen, *between, WHOLE, accumulate, *formats)
            return
        lows = [_masked(graph, node, x, _SRC_B, fidelity, low=True)]
        lows += [_masked(graph, node, weight, _SRC_A, fidelity, low=True)]
    node.args = (seen, weight_seen, *between, WHOLE, accumulate)
    if between:
        between[0] = None  # the bias is added once
    with graph.inserting_after(node):
        low = _made(graph, node, node.target, (*lows, *between, WHOLE, accumulate))
    with graph.inserting_after(low):
        result = _made(graph, node, torch.ops.aten.add.Tensor, (node, low))
    users = [user for user in node.users if user is not result]
    for each in formats:
        if each is not False and each != accumulate:
            with graph.inserting_after(result):
                result = _made(graph, node, torch.ops.loom_numerics.quantize.default, (result, each))
    for user in users:
        user.replace_input_with(node, result)


def _masked(
    graph: fx.Graph, node: fx.Node, source: fx.Node, side: int, fidelity: MathFidelity, low: bool = False
) -> fx.Node:
    made = _made(graph, node, torch.ops.loom_numerics.operand.default, (source, side, fidelity.value, low))
    made.meta["val"] = value_of(source)
    return made


def _made(graph: fx.Graph, node: fx.Node, op: Any, args: tuple[Any, ...]) -> fx.Node:
    """A node that is a part of another's kernel, which a plan does not see."""
    made = graph.call_function(op, args)
    made.meta["val"] = value_of(node)
    facts(made).tags["operand"] = True
    facts(made).fused_into = node.name
    facts(made).format = facts(node).format
    return made

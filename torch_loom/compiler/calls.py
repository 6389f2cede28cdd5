"""From a node to the call that an image holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torch_loom.compiler.ir import facts, op_name
from torch_loom.errors import CompilerOptionError
from torch_loom.image.program import Call, Program, encode


def name_of(value: Any) -> str | None:
    """Return the name of a node; None for any other value."""
    return value.name if isinstance(value, fx.Node) else None


def call_of(node: fx.Node) -> Call:
    """Return the call of a node.

    Raises:
        CompilerOptionError: it calls what no image can: control flow, or a function of Python.
    """
    own = facts(node)
    if getattr(node.target, "__name__", "") == "getitem":
        return Call(
            node.name, "getitem", [encode(argument, name_of) for argument in node.args], source=own.source
        )
    if not isinstance(node.target, torch._ops.OpOverload):
        raise CompilerOptionError(
            f"{node.name} calls {op_name(node)}, which is no op that an executable can hold. torch.compile("
            'backend="loom") runs such graphs'
        )
    return Call(
        node.name,
        op_name(node),
        [encode(argument, name_of) for argument in node.args],
        {key: encode(each, name_of) for key, each in node.kwargs.items()},
        bool(own.host_reason),
        own.source,
    )


def part_of(graph: fx.Graph, wanted: list[fx.Node]) -> Program:
    """Return the program that makes some nodes of a graph out of its placeholders; it has no inputs."""
    needed, waiting = set(wanted), list(wanted)
    while waiting:
        for source in waiting.pop().all_input_nodes:
            if source not in needed:
                needed.add(source)
                waiting.append(source)
    nodes = [node for node in graph.nodes if node in needed]
    return Program(
        [],
        [node.name for node in nodes if node.op == "placeholder"],
        [call_of(node) for node in nodes if node.op != "placeholder"],
        [{"ref": node.name} for node in wanted],
    )

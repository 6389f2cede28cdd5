"""Runs passes in their order: times each, counts its ops, dumps and checks the graph on request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import fx

from torch_loom.chips import Chip
from torch_loom.compiler.ir import computes, op_name
from torch_loom.compiler.options import Options
from torch_loom.compiler.passes.legality import check
from torch_loom.image.program import Program

log = logging.getLogger("torch_loom.compiler")


@dataclass
class Context:
    """What passes know beside the graph.

    Attributes:
        chip: that the graph is compiled for.
        options: the configuration.
        parameters: values of the graph's inputs that are parameters or constants, by the node's name; only
            where they are known and frozen.
        checks: whether the legality check runs after each pass.
        dump: a folder to which the graph is written after each pass.
        records: what each pass took and left.
        notes: what passes add to the report, in words.
        found: what passes leave for later passes, by their names.
        updated: names of those parameters that a run changes.
        folded: the program that makes what has been computed of parameters alone, and the names of its
            results.
    """

    chip: Chip
    options: Options
    parameters: dict[str, Any] = field(default_factory=dict)
    checks: bool = False
    dump: Path | None = None
    records: list[PassRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    progress: Callable[[str], None] | None = None
    updated: frozenset[str] = frozenset()
    folded: tuple[Program, list[str]] = field(default_factory=lambda: (Program([], [], [], []), []))


@dataclass(frozen=True)
class Pass:
    """One pass: a function ``(graph, context) -> graph`` with one job."""

    name: str
    function: Callable[[fx.GraphModule, Context], fx.GraphModule]
    changes_numbers: bool = False


@dataclass(frozen=True)
class PassRecord:
    """What a pass took in milliseconds, and the number of ops before and after it."""

    name: str
    milliseconds: float
    ops_before: int
    ops_after: int


def run(graph: fx.GraphModule, passes: tuple[Pass, ...], context: Context) -> fx.GraphModule:
    """Run the passes; passes that change numbers run only where the options do not ask for exact numbers.

    Raises:
        IllegalGraphError: a pass left a graph that the check refuses; it is named.
    """
    before = _num_ops(graph)
    for number, each in enumerate(passes):
        if each.changes_numbers and context.options.is_exact:
            continue
        if context.progress is not None:
            context.progress(each.name)
        begun = time.perf_counter()
        graph = each.function(graph, context)
        took = (time.perf_counter() - begun) * 1e3
        record = PassRecord(each.name, took, before, _num_ops(graph))
        before = record.ops_after
        context.records.append(record)
        log.info("%-14s %8.1f ms  %5d -> %5d ops", each.name, took, record.ops_before, record.ops_after)
        if context.checks:
            check(graph, each.name)
        if context.dump is not None:
            context.dump.mkdir(parents=True, exist_ok=True)
            path = context.dump / f"{number:02d}_{each.name.replace(' ', '_')}.txt"
            path.write_text(printed(graph), encoding="utf-8")
    return graph


def _num_ops(graph: fx.GraphModule) -> int:
    found: dict[int, tuple[fx.Node, int]] = {}  # by target: graphs have many nodes of few ops
    for node in graph.graph.nodes:
        if node.op == "call_function":
            first, number = found.get(id(node.target), (node, 0))
            found[id(node.target)] = first, number + 1
    return sum(number for node, number in found.values() if computes(node))


def printed(graph: fx.GraphModule) -> str:
    """Return the graph as text: a node a line, with what loom knows of it."""
    lines = []
    for node in graph.graph.nodes:
        own = node.meta.get("loom")
        known = "" if own is None else f"   # {_known(own)}"
        lines.append(f"{node.name} = {node.op} {op_name(node)}({_shown(node.args)}){known}")
    return "\n".join(lines) + "\n"


def _shown(args: Any) -> str:
    return ", ".join(str(arg) for arg in args)


def _known(own: Any) -> str:
    known = {key: value for key, value in vars(own).items() if value and key != "tags"}
    return ", ".join(f"{key}={value}" for key, value in known.items())

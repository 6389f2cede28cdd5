"""The last steps: from graph and plan to what an executable keeps."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torch_loom.compiler.calls import call_of, name_of
from torch_loom.compiler.ir import facts, op_name, value_of
from torch_loom.compiler.passes.runner import Context
from torch_loom.compiler.plan.end_to_end import end_to_end
from torch_loom.compiler.plan.model import Plan
from torch_loom.compiler.target import Target
from torch_loom.errors import UnknownOpError
from torch_loom.image.program import Program, encode


def program_of(
    graph: fx.GraphModule,
    parameters: dict[str, Any],
    updates: dict[str, int],
    saved: Sequence[str] = (),
) -> Program:
    """Return the program of a graph.

    Args:
        parameters: names of placeholders that are no inputs.
        updates: parameters and buffers that take an output after each run, and which.
        saved: names of nodes whose results follow the outputs.

    Raises:
        CompilerOptionError: the graph calls what no image can: control flow, or a function of Python.
        UnknownOpError: a saved node does not exist, or its result is no tensor.
    """
    inputs, tensors, calls = [], [], []
    outputs: list[Any] = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            if node.name in parameters:
                tensors.append(node.name)
            else:
                value = node.meta["val"]
                dtype = str(value.dtype).removeprefix("torch.")
                inputs.append({"name": node.name, "shape": [int(s) for s in value.shape], "dtype": dtype})
        elif node.op == "output":
            outputs = [encode(argument, name_of) for argument in node.args[0]]
        else:
            calls.append(call_of(node))
    kept = [output for i, output in enumerate(outputs) if i not in updates.values()]
    kept += [{"ref": node.name} for node in saved_nodes(graph, saved)]
    return Program(inputs, tensors, calls, kept, {name: outputs[i] for name, i in updates.items()})


def saved_nodes(graph: fx.GraphModule, names: Sequence[str]) -> list[fx.Node]:
    """Return the nodes that ``op_intermediates_to_save`` names.

    Raises:
        UnknownOpError: an op does not exist, or its result is no tensor.
    """
    known = {node.name: node for node in graph.graph.nodes if isinstance(value_of(node), torch.Tensor)}
    if unknown := [name for name in names if name not in known]:
        near = difflib.get_close_matches(unknown[0], known, 5)
        raise UnknownOpError(
            f"op_intermediates_to_save: {unknown[0]!r} is no op of the graph"
            + (f"; there are {', '.join(near)}" if near else "")
        )
    return [known[name] for name in names]


def plan_data(
    graph: fx.GraphModule, plan: Plan, target: Target, context: Context, batch: int
) -> dict[str, Any]:
    """Return what netlist and report show, as JSON has it."""
    options = context.options
    clock_hz = target.clock_ghz * 1e9
    interval = plan.interval_cycles
    busy = sum(each.cycles * each.grid[0] * each.grid[1] for epoch in plan.epochs for each in epoch.placed)
    whole = sum(epoch.cycles for epoch in plan.epochs) * target.cores
    hosts = {
        node.name: {"op": op_name(node), "reason": facts(node).host_reason, "source": facts(node).source}
        for node in graph.graph.nodes
        if facts(node).host_reason
    }
    return {
        "chip": target.chip.name,
        "num_chips": plan.num_chips,
        "grid": [plan.rows, plan.columns],
        "sram_bytes": target.sram_bytes,
        "channels": target.channels,
        "channel_bytes": target.channel_bytes,
        "clock_ghz": target.clock_ghz,
        "harvested_rows": [list(each) for each in target.harvested],
        "options": changed(options),
        "epochs": [_epoch_data(epoch) for epoch in plan.epochs],
        "edges": [[edge.producer, edge.consumer, edge.bytes] for edge in plan.edges],
        "queues": [
            {key: list(each) if isinstance(each, tuple) else each for key, each in vars(queue).items()}
            for queue in plan.queues
        ],
        "host": hosts,
        "notes": context.notes,
        "passes": [vars(record) for record in context.records],
        "totals": {
            "latency_seconds": plan.latency_cycles / clock_hz,
            "interval_seconds": interval / clock_hz,
            "runs_per_second": clock_hz / interval if interval else 0.0,
            "samples_per_second": batch * clock_hz / interval if interval else 0.0,
            "utilisation": busy / whole if whole else 0.0,
        },
        "end_to_end": end_to_end(plan, target, batch),
    }


def _epoch_data(epoch: Any) -> dict[str, Any]:
    return {
        "index": epoch.index,
        "chip": epoch.chip,
        "cycles": epoch.cycles,
        "dram_bytes": epoch.dram_bytes,
        "dram_cycles": epoch.dram_cycles,
        "fill_cycles": epoch.fill_cycles,
        "bound": epoch.bound,
        "ops": [_op_data(each) for each in epoch.placed],
    }


def _op_data(each: Any) -> dict[str, Any]:
    work = each.work
    return {
        "name": work.name,
        "type": work.kind,
        "parts": list(work.parts),
        "grid_loc": [each.row, each.column],
        "grid_size": list(each.grid),
        "transposed": each.transposed,
        "t": each.t,
        "cycles": each.cycles,
        "sram_bytes": each.sram_bytes,
        "parameter_bytes": work.parameter_bytes,
        "input_bytes": work.input_bytes,
        "output_bytes": work.output_bytes,
        "shape": list(work.shape),
        "format": work.out_format,
        "fidelity": work.fidelity,
        "accumulate": work.accumulate,
        "role": work.role,
        "source": work.source,
    }


def changed(options: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, as JSON has them."""
    default = type(options)()
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in vars(options).items()
        if value != getattr(default, key)
    }

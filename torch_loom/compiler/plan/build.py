"""From a graph to its plan: the ops with their costs, then epochs, places and queues."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch
from torch import fx
from torch.fx.node import map_arg

from torch_loom.chips.cost import Op
from torch_loom.chips.cost.calls import described, of_call
from torch_loom.chips.cost.records import Tensor
from torch_loom.compiler.ir import (
    computes,
    facts,
    num_bytes,
    num_elements,
    op_name,
    shape_class,
    tensors_of,
    value_of,
)
from torch_loom.compiler.options import Options
from torch_loom.compiler.overrides import Overrides
from torch_loom.compiler.passes.runner import Context
from torch_loom.compiler.plan.balance import Settings, epochs_of, fill_choices, place_runs
from torch_loom.compiler.plan.inputs import ROW_MAJOR, gather_cycles, layouts, tilizer, tilizer_name
from torch_loom.compiler.plan.memory import memory_breaks, plan_queues
from torch_loom.compiler.plan.model import Edge, Epoch, Placed, Plan, Work
from torch_loom.compiler.predicates import Named, matching
from torch_loom.compiler.target import TILE, Target
from torch_loom.errors import PlacementError
from torch_loom.numerics import DataFormat, MathFidelity

# The dtype of a format in the cost model.
_COST_DTYPES = {
    "Float32": "float32",
    "Float16": "float16",
    "Float16_b": "bfloat16",
    **{name: name.lower() for name in ("Bfp8", "Bfp8_b", "Bfp4", "Bfp4_b", "Bfp2", "Bfp2_b", "Lf8")},
}
# How far an op can be cut in time: PyBuda's rule of thumb is a slice for each row or column of tiles.
MAX_T = 4096


def plan_graph(graph: fx.GraphModule, context: Context, target: Target, overrides: Overrides) -> Plan:
    """Plan a graph.

    Raises:
        PlacementError: it does not fit; the message names op, need, what there is, and what helps.
        UnknownOpError: a break or an override names an op that the plan does not have.
    """
    groups = _groups(graph)
    options = context.options
    readers = _readers(graph, groups, context)
    how = layouts(readers, options)
    tilized = [node for node in readers if how[node.name] == ROW_MAJOR]
    named = [Named(root.name, op_name(root), facts(root).module, facts(root).label) for root in groups]
    named += [Named(tilizer_name(node.name), "loom::tilize", "") for node in tilized]
    overrides = overrides.of_ops(named)
    settings = _settings(options, overrides, named)
    parameters = set(context.parameters)
    works = []
    for node in tilized:
        work, cycles = tilizer(node, _format_at(readers[node]), target)
        fill_choices(work, target, settings, cycles, _hint(options))
        works.append(work)
    timers: dict[str, Callable[[int], float]] = {}
    for root, parts in groups.items():
        work = _work(root, parts, parameters, options, overrides)
        costs = [_cost_of(part) for part in parts]
        phases = _phases(work, facts(root).format, target)
        picking = gather_cycles(parts, set(readers), options, target)
        # Layers of a model are alike: what one takes, all take.
        key = repr((costs, phases, picking))
        if key not in timers:
            timers[key] = _timer(costs, phases, picking, target)
        fill_choices(work, target, settings, timers[key], _hint(options))
        works.append(work)
    chips = matching(overrides.chip_breaks, named, "set_chip_break") if overrides.chip_breaks else []
    breaks = matching(overrides.epoch_breaks, named, "set_epoch_break") if overrides.epoch_breaks else []
    dram = [work.parameter_bytes / target.dram_bytes_per_cycle for work in works]
    edges = [*_tilizer_edges(tilized, readers, groups, works), *_edges(graph, groups)]

    def planned(chips: list[str], is_balanced: bool) -> Plan:
        runs = epochs_of(works, target, settings, frozenset([*chips, *breaks]), dram, edges)
        epochs = place_runs(works, runs, target, settings)
        plan = Plan(epochs, list(edges), [], target.num_chips, target.rows, target.columns)
        _assign_chips(plan, options, frozenset(chips), is_balanced)
        _queues(graph, plan, target, options, overrides, groups, readers, how)
        _finish(plan, target)
        return plan

    try:
        return planned(chips, is_balanced=True)
    except PlacementError:
        # Balanced, a chip may have parameters that it cannot hold.
        shares = [] if chips else memory_breaks(works, target)
        if not shares:
            raise
        return planned(shares, is_balanced=False)


def _phases(work: Work, name: str, target: Target) -> float:
    """How long a product takes against the peak rate of its format."""
    dtype = _COST_DTYPES.get(name)
    if not work.fidelity or dtype is None:
        return 1.0
    return target.passes_against_peak(dtype, MathFidelity[work.fidelity].num_passes)


def _timer(costs: list[Op], phases: float, picking: float, target: Target) -> Callable[[int], float]:
    """Return what a kernel takes by the number of its cores; what is fused finds its tiles there already.

    Args:
        picking: cycles, of one core, beside what the ops take.
    """
    first, *others = (target.timer(cost, phases) for cost in costs)
    return functools.cache(
        lambda cores: first(cores) + picking / cores + 0.25 * sum(other(cores) for other in others)
    )


def _readers(
    graph: fx.GraphModule, groups: dict[fx.Node, list[fx.Node]], context: Context
) -> dict[fx.Node, list[fx.Node]]:
    """The nodes with a kernel that read each input, through views or not."""
    found: dict[fx.Node, list[fx.Node]] = {}
    for parts in groups.values():
        for part in parts:
            for source in part.all_input_nodes:
                origin = _origin(source)
                if origin.op == "placeholder" and origin.name not in context.parameters:
                    readers = found.setdefault(origin, [])
                    if part not in readers:
                        readers.append(part)
    return found


def _format_at(readers: list[fx.Node]) -> str:
    return facts(readers[0]).format


def _hint(options: Options) -> str:
    if not options.enable_t_streaming:
        return "enable_t_streaming=True cuts it in slices in time"
    if options.manual_t_streaming:
        return "manual_t_streaming=True: name it in override_t_stream_dir, or leave the option out"
    if options.place_on_one_row:
        return "place_on_one_row=False gives it more cores"
    return "A narrower default_df_override, or a smaller batch, makes it smaller"


def _settings(options: Options, overrides: Overrides, named: list[Named]) -> Settings:
    for what, names in (
        ("override_op_size", overrides.sizes),
        ("override_op_placement", overrides.starts),
        ("override_t_stream_dir", overrides.streams),
    ):
        if names:
            matching(list(names), named, what)
    return Settings(
        options.balancer_policy,
        one_row=options.place_on_one_row,
        may_turn=options.enable_auto_transposing_placement,
        retries=options.use_interactive_placer,
        sizes=overrides.sizes,
        starts=overrides.starts,
        turned=frozenset(overrides.turned),
    )


def _groups(graph: fx.GraphModule) -> dict[fx.Node, list[fx.Node]]:
    """The kernels in the order of what they read: for each node with one of its own, those that run in it."""
    groups: dict[fx.Node, list[fx.Node]] = {}
    by_name: dict[str, fx.Node] = {}
    for node in graph.graph.nodes:
        if not computes(node) or facts(node).host_reason or facts(node).tags.get("operand"):
            continue
        by_name[node.name] = node
        root = by_name.get(facts(node).fused_into, node)
        while facts(root).fused_into in by_name:
            root = by_name[facts(root).fused_into]
        groups.setdefault(root, []).append(node)
    # A fused op may read what is computed after its kernel's first op: a residual, for one.
    ended = {node: place for place, node in enumerate(graph.graph.nodes)}
    return dict(sorted(groups.items(), key=lambda group: ended[group[1][-1]]))


def _bytes(node: fx.Node, default: str = "") -> int:
    """Bytes of a node's result in its data format."""
    own = facts(node)
    name = own.format or default
    if not name:
        return num_bytes(value_of(node))
    return math.ceil(num_elements(value_of(node)) * DataFormat[name].bytes_per_element)


def _work(
    root: fx.Node, parts: list[fx.Node], parameters: set[str], options: Options, overrides: Overrides
) -> Work:
    own = facts(root)
    inside = set(parts)
    parameter_bytes = input_bytes = 0
    seen: set[fx.Node] = set()
    for part in parts:
        for source in part.all_input_nodes:
            origin = _origin(source)
            if origin in inside or origin in seen:
                continue
            seen.add(origin)
            if origin.name in parameters or origin.op == "get_attr":
                parameter_bytes += _bytes(origin, own.format if _is_float(origin) else "")
            else:
                input_bytes += _bytes(origin, own.format if _is_float(origin) else "")
    last = parts[-1]
    shape = tuple(int(size) for size in next(iter(tensors_of(value_of(last)))).shape)
    rows = math.prod(shape[:-1]) if len(shape) > 1 else 1
    columns = shape[-1] if shape else 1
    direction = overrides.streams.get(root.name)
    streams = options.enable_t_streaming and (not options.manual_t_streaming or direction not in (None, "n"))
    return Work(
        root.name,
        op_name(root),
        tuple(part.name for part in parts),
        parameter_bytes,
        input_bytes,
        _bytes(last),
        (max(1, -(-rows // TILE)), max(1, -(-columns // TILE))),
        shape,
        facts(last).format,
        own.fidelity if _has_fidelity(root) else "",
        own.accumulate,
        own.source,
        MAX_T if streams and direction != "n" else 1,
        role=own.role,
    )


def _has_fidelity(node: fx.Node) -> bool:
    is_product = shape_class(node) in ("matmul", "convolution", "attention")
    return is_product or facts(node).role == "optimizer"


def _is_float(node: fx.Node) -> bool:
    value = next(tensors_of(value_of(node)), None)
    return value is not None and value.dtype.is_floating_point


def _origin(node: fx.Node) -> fx.Node:
    """Where a value comes from: through views, ``getitem`` and conversions of operands."""
    while node.op == "call_function" and node.all_input_nodes:
        if computes(node) and not facts(node).tags.get("operand"):
            break
        node = node.all_input_nodes[0]
    return node


def _cost_of(node: fx.Node) -> Op:
    format_dtype = _COST_DTYPES.get(facts(node).format, "")

    def in_format(value: torch.Tensor) -> Tensor:
        own = described(value)
        return own._replace(dtype=format_dtype) if value.dtype.is_floating_point and format_dtype else own

    args, kwargs = map_arg((node.args, node.kwargs), value_of)
    return of_call(node.target._schema, args, kwargs, value_of(node), in_format)  # type: ignore[union-attr]


def _edges(graph: fx.GraphModule, groups: dict[fx.Node, list[fx.Node]]) -> Iterator[Edge]:
    root_of = {part: root for root, parts in groups.items() for part in parts}
    seen: set[tuple[str, str]] = set()
    for root, parts in groups.items():
        for part in parts:
            for source in part.all_input_nodes:
                origin = _origin(source)
                producer = root_of.get(origin)
                if producer is None or producer is root or (producer.name, root.name) in seen:
                    continue
                seen.add((producer.name, root.name))
                yield Edge(producer.name, root.name, max(1, _bytes(origin)))


def _tilizer_edges(
    tilized: list[fx.Node],
    readers: dict[fx.Node, list[fx.Node]],
    groups: dict[fx.Node, list[fx.Node]],
    works: list[Work],
) -> Iterator[Edge]:
    root_of = {part: root.name for root, parts in groups.items() for part in parts}
    for node, work in zip(tilized, works, strict=False):
        for reader in dict.fromkeys(root_of[part] for part in readers[node]):
            yield Edge(work.name, reader, work.output_bytes)


def _assign_chips(plan: Plan, options: Options, breaks: frozenset[str], is_balanced: bool = True) -> None:
    """Spread epochs over chips in their order: at ``breaks``, and balanced, so that none has most to do."""
    order = list(range(plan.num_chips))
    if options.chip_placement_policy == "MMIO_LAST":
        order = [*order[1:], order[0]] if len(order) > 1 else order
    else:  # SNAKE: there along one row of a board of four chips a row, back along the next
        order = [
            chip for start in range(0, len(order), 4) for chip in _row(order[start : start + 4], start // 4)
        ]
    cycles = [max(each.cycles for each in epoch.placed) for epoch in plan.epochs]
    total, step, busy = sum(cycles), 0, 0.0
    share = total / plan.num_chips if plan.num_chips else total
    for epoch, own in zip(plan.epochs, cycles, strict=True):
        forced = any(each.work.name in breaks for each in epoch.placed)
        over = is_balanced and busy + own / 2 > share * (step + 1)
        if epoch.index and (forced or over) and step + 1 < plan.num_chips:
            step += 1
        epoch.chip = order[step]
        busy += own


def _row(chips: list[int], number: int) -> list[int]:
    return chips if number % 2 == 0 else chips[::-1]


def _queues(
    graph: fx.GraphModule,
    plan: Plan,
    target: Target,
    options: Options,
    overrides: Overrides,
    groups: dict[fx.Node, list[fx.Node]],
    readers: dict[fx.Node, list[fx.Node]],
    how: dict[str, str],
) -> None:
    root_of = {part: root.name for root, parts in groups.items() for part in parts}
    inputs: dict[str, tuple[int, tuple[str, ...]]] = {}
    for node, parts in readers.items():
        names = tuple(dict.fromkeys(root_of[part] for part in parts))
        if how[node.name] == ROW_MAJOR:
            names = (tilizer_name(node.name),)
        inputs[node.name] = (max(1, _bytes(node)), names)
    outputs: dict[str, tuple[int, str]] = {}
    (result,) = graph.graph.find_nodes(op="output")
    for number, node in enumerate(result.all_input_nodes):
        origin = _origin(node)
        maker = root_of.get(origin, "")
        outputs[f"output_{number}"] = (max(1, _bytes(origin)), maker)
    by_name = {node.name: node for node in root_of}
    for name in options.op_intermediates_to_save:
        if name in by_name:
            outputs[f"saved_{name}"] = (max(1, _bytes(by_name[name])), root_of[by_name[name]])
    parameters = {
        f"{each.work.name}_parameters": (each.work.parameter_bytes, each.work.name)
        for epoch in plan.epochs
        for each in epoch.placed
        if each.work.parameter_bytes
    }
    plan_queues(
        plan,
        target,
        options,
        inputs=inputs,
        outputs=outputs,
        parameters=parameters,
        pinned=overrides.queues,
        layouts=how,
    )


def _finish(plan: Plan, target: Target) -> None:
    """Cycles of each epoch: its slowest op, or what it reads from and writes to DRAM."""
    chip_epochs = [0] * plan.num_chips
    for epoch in plan.epochs:
        chip_epochs[epoch.chip] += 1
    for epoch in plan.epochs:
        names = {each.work.name for each in epoch.placed}
        # A chip with one epoch keeps its parameters in SRAM from run to run.
        resident = chip_epochs[epoch.chip] == 1
        moved = 0
        for queue in plan.queues:
            if queue.place != "dram" or (queue.kind == "parameter" and resident):
                continue
            readers = len(names.intersection(queue.consumers))
            moved += queue.bytes * ((queue.producer in names) + (1 if readers else 0))
        epoch.dram_bytes = moved
        epoch.dram_cycles = moved / target.dram_bytes_per_cycle
        slowest = max(epoch.placed, key=lambda each: each.cycles)
        epoch.cycles = max(slowest.cycles, epoch.dram_cycles)
        epoch.fill_cycles = _longest_path(epoch, plan.edges) - slowest.cycles / _pieces(slowest)


def _longest_path(epoch: Epoch, edges: list[Edge]) -> float:
    """Cycles from the first piece that an epoch's first op takes to that piece's end behind its last op."""
    producers: dict[str, list[str]] = {}
    for edge in edges:
        producers.setdefault(edge.consumer, []).append(edge.producer)
    done: dict[str, float] = {}
    for each in epoch.placed:  # in the order in which they read one another
        begun = max((done.get(name, 0.0) for name in producers.get(each.work.name, ())), default=0.0)
        done[each.work.name] = begun + each.cycles / _pieces(each)
    return max(done.values())


def _pieces(placed: Placed) -> int:
    """In how many pieces an op hands its result on: PyBuda's t, of each sample the slices in time."""
    shape = placed.work.shape
    return placed.t * (max(shape[0], 1) if len(shape) > 2 else 1)

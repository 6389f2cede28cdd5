"""Verifies a plan, knowing nothing of how it was made."""

from __future__ import annotations

import itertools
from collections import defaultdict

from torch_loom.compiler.plan.model import Epoch, Plan
from torch_loom.compiler.target import Target


def violations(plan: Plan, target: Target) -> list[str]:
    """Return what is wrong with a plan, a sentence each; empty: it can run.

    Checked: each op stands once, its rectangle is on its chip, rectangles of an epoch do not overlap, SRAM
    and DRAM hold what is put there, no two queues overlap, data flows from earlier epochs to later ones,
    every edge has a buffer, and no buffer is so small that the ops of an epoch wait for one another for ever.
    """
    return [
        *_placement(plan, target),
        *_memory(plan, target),
        *_flow(plan),
        *(problem for epoch in plan.epochs for problem in _deadlock(plan, epoch)),
    ]


def _placement(plan: Plan, target: Target) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for epoch in plan.epochs:
        if not 0 <= epoch.chip < target.num_chips:
            found.append(f"epoch {epoch.index} is on chip {epoch.chip} of {target.num_chips}")
        cells: dict[tuple[int, int], str] = {}
        for each in epoch.placed:
            name = each.work.name
            if name in seen:
                found.append(f"{name} is placed twice")
            seen.add(name)
            for row in range(each.row, each.row + each.grid[0]):
                for column in range(each.column, each.column + each.grid[1]):
                    if not (0 <= row < target.rows and 0 <= column < target.columns):
                        found.append(f"{name} is on core {row}, {column}, which does not exist")
                    elif (row, column) in cells:
                        found.append(f"{name} and {cells[row, column]} share core {row}, {column}")
                    cells[row, column] = name
            if each.sram_bytes > target.sram_bytes:
                found.append(
                    f"{name} needs {each.sram_bytes} bytes of each core, {target.sram_bytes} are there"
                )
            held = each.work.parameter_bytes + 2 * (each.work.input_bytes + each.work.output_bytes)
            if each.sram_bytes * each.grid[0] * each.grid[1] * each.t < held:
                found.append(f"{name} has less memory than its operands take")
    return found


def _memory(plan: Plan, target: Target) -> list[str]:
    found = []
    spans = defaultdict(list)
    for queue in plan.queues:
        if queue.place != "dram":
            continue
        end = queue.address + queue.bytes * queue.entries
        if not (0 <= queue.channel < target.channels and queue.address >= 0 and end <= target.channel_bytes):
            found.append(f"{queue.name} lies outside of channel {queue.channel} of chip {queue.chip}")
        spans[queue.chip, queue.channel].append((queue.address, end, queue.name))
    for place, queues in spans.items():
        queues.sort()
        for (_, end, first), (begin, _, second) in itertools.pairwise(queues):
            if begin < end:
                found.append(f"{first} and {second} overlap in channel {place[1]} of chip {place[0]}")
    return found


def _flow(plan: Plan) -> list[str]:
    found = []
    place = {each.work.name: epoch.index for epoch in plan.epochs for each in epoch.placed}
    order = {
        each.work.name: i for i, each in enumerate(each for epoch in plan.epochs for each in epoch.placed)
    }
    buffered = {(queue.producer, reader) for queue in plan.queues for reader in queue.consumers}
    for edge in plan.edges:
        if edge.producer not in place or edge.consumer not in place:
            found.append(f"the edge from {edge.producer} to {edge.consumer} leads to an op without a place")
            continue
        if place[edge.producer] > place[edge.consumer] or order[edge.producer] > order[edge.consumer]:
            found.append(f"{edge.consumer} runs before {edge.producer}, whose result it reads")
        if (edge.producer, edge.consumer) not in buffered:
            found.append(f"nothing holds what {edge.producer} hands {edge.consumer}")
    return found


def _deadlock(plan: Plan, epoch: Epoch) -> list[str]:
    """Runs the epoch as a network of bounded buffers, a result at a time, until each op has made some."""
    names = [each.work.name for each in epoch.placed]
    inside = set(names)
    edges = [edge for edge in plan.edges if edge.producer in inside and edge.consumer in inside]
    room: dict[tuple[str, str], int] = {}
    for queue in plan.queues:
        for reader in queue.consumers:
            if queue.producer in inside and reader in inside:
                room[queue.producer, reader] = queue.entries
    held = dict.fromkeys(room, 0)
    ins = defaultdict(list)
    outs = defaultdict(list)
    for edge in edges:
        key = (edge.producer, edge.consumer)
        if key not in room:
            return []  # reported by _flow
        ins[edge.consumer].append(key)
        outs[edge.producer].append(key)
    made = dict.fromkeys(names, 0)
    # As many runs as the pipeline is deep, and some; each step every op that can, works once, all at a time.
    runs = len(names) + 3
    for _ in range(4 * runs):
        ready = [
            name
            for name in names
            if made[name] < runs
            and all(held[key] > 0 for key in ins[name])
            and all(held[key] < room[key] for key in outs[name])
        ]
        if not ready:
            break
        for name in ready:
            made[name] += 1
            for key in ins[name]:
                held[key] -= 1
            for key in outs[name]:
                held[key] += 1
    stuck = [name for name, count in made.items() if count < runs]
    return [f"epoch {epoch.index}: {', '.join(stuck[:5])} wait for one another for ever"] if stuck else []

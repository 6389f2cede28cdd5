"""Branches and loops. They run as Python does: what depends on values is refused by exporters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def branch(
    condition: Any, then: nn.Module, otherwise: nn.Module, first: Sequence[Any], second: Sequence[Any]
) -> tuple[Any, ...]:
    """Run one of two graphs, each with what it captures."""
    made: tuple[Any, ...] = then(*first) if bool(condition) else otherwise(*second)
    return made


def loop(
    limit: Any, condition: Any, states: Sequence[Any], body: nn.Module, captured: Sequence[Any], like: Any
) -> tuple[Any, ...]:
    """Run a graph until its condition fails or the limit is reached; return states and stacked outputs."""
    place = None if like is None else like.device
    states, rows = list(states), []
    for number in itertools.count():
        if (limit is not None and number >= int(limit)) or (condition is not None and not bool(condition)):
            break
        at = torch.tensor(number, dtype=torch.int64, device=place)
        kept = torch.tensor(True, device=place) if condition is None else condition
        made = body(at, kept, *states, *captured)
        condition = made[0] if condition is not None or not bool(made[0]) else None
        states, row = list(made[1 : 1 + len(states)]), made[1 + len(states) :]
        rows.append(row)
    return (*states, *(torch.stack(list(row)) for row in zip(*rows, strict=True)))


def scan(
    states: Sequence[Any],
    inputs: Sequence[Tensor],
    body: nn.Module,
    captured: Sequence[Any],
    input_axes: Sequence[int],
    input_directions: Sequence[int],
    output_axes: Sequence[int],
    output_directions: Sequence[int],
) -> tuple[Any, ...]:
    """Run a graph over slices of its inputs; return states and stacked outputs."""
    sliced = [
        (one.flip(axis) if backwards else one).unbind(axis)
        for one, axis, backwards in zip(inputs, input_axes, input_directions, strict=True)
    ]
    states, rows = list(states), []
    for slices in zip(*sliced, strict=True):
        made = body(*states, *slices, *captured)
        states, row = list(made[: len(states)]), made[len(states) :]
        rows.append(row)
    outputs = []
    for number, row in enumerate(zip(*rows, strict=True)):
        stacked = torch.stack(list(row), output_axes[number] if output_axes else 0)
        backwards = output_directions[number] if output_directions else 0
        outputs.append(stacked.flip(output_axes[number] if output_axes else 0) if backwards else stacked)
    return (*states, *outputs)

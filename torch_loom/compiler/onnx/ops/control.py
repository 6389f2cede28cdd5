"""Branches and loops. They run as Python does: what depends on values is refused by exporters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torch_loom.errors import OnnxError

Declared = tuple[torch.dtype | None, Sequence[int] | None]
"""What a body says of an output: dtype and sizes; None: it does not say."""


def _rows(rows: Sequence[Sequence[Tensor]], declared: Sequence[Declared]) -> list[Sequence[Tensor]]:
    """Return each output's rows; of a body that never ran, none."""
    if rows:
        return list(zip(*rows, strict=True))
    for dtype, dims in declared:
        if dtype is None or dims is None:
            raise OnnxError(
                "a loop that never ran has an output whose dtype and sizes its body does not declare: infer "
                "them with onnx.shape_inference, and save the model with them"
            )
    return [()] * len(declared)


def _stacked(row: Sequence[Tensor], declared: Declared, axis: int, place: Any) -> Tensor:
    if row:
        return torch.stack(list(row), axis)
    dtype, dims = declared
    shape = list(dims or ())
    shape.insert(axis % (len(shape) + 1), 0)
    return torch.empty(shape, dtype=dtype, device=place)


def branch(
    condition: Any, then: nn.Module, otherwise: nn.Module, first: Sequence[Any], second: Sequence[Any]
) -> tuple[Any, ...]:
    """Run one of two graphs, each with what it captures."""
    made: tuple[Any, ...] = then(*first) if bool(condition) else otherwise(*second)
    return made


def loop(
    limit: Any,
    condition: Any,
    states: Sequence[Any],
    body: nn.Module,
    captured: Sequence[Any],
    like: Any,
    declared: Sequence[Declared],
) -> tuple[Any, ...]:
    """Run a graph until its condition fails or the limit is reached; return states and stacked outputs.

    Raises:
        OnnxError: it never ran, and the body does not declare its outputs.
    """
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
    outputs = zip(_rows(rows, declared), declared, strict=True)
    return (*states, *(_stacked(row, each, 0, place) for row, each in outputs))


def scan(
    states: Sequence[Any],
    inputs: Sequence[Tensor],
    body: nn.Module,
    captured: Sequence[Any],
    input_axes: Sequence[int],
    input_directions: Sequence[int],
    output_axes: Sequence[int],
    output_directions: Sequence[int],
    declared: Sequence[Declared],
) -> tuple[Any, ...]:
    """Run a graph over slices of its inputs; return states and stacked outputs.

    Raises:
        OnnxError: there are no slices, and the body does not declare its outputs.
    """
    sliced = [
        (each.flip(axis) if backwards else each).unbind(axis)
        for each, axis, backwards in zip(inputs, input_axes, input_directions, strict=True)
    ]
    states, rows = list(states), []
    for slices in zip(*sliced, strict=True):
        made = body(*states, *slices, *captured)
        states, row = list(made[: len(states)]), made[len(states) :]
        rows.append(row)
    outputs = []
    for number, row in enumerate(_rows(rows, declared)):
        axis = output_axes[number] if output_axes else 0
        stacked = _stacked(row, declared[number], axis, inputs[0].device)
        backwards = output_directions[number] if output_directions else 0
        outputs.append(stacked.flip(axis) if backwards else stacked)
    return (*states, *outputs)

"""What every op does: run on values or shapes, name the failure, and record that it ran."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx.traceback import annotate, has_preserved_node_meta

from torch_loom.compiler.frontend import LABEL
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.execution import trace
from torch_loom.pybuda.tensor import Tensor, TensorBase

_unrecorded = itertools.count()


def apply(
    op_type: str,
    name: str,
    operands: tuple[Any, ...],
    compute: Callable[..., Any],
    attributes: Mapping[str, Any] | None = None,
    format_of_operand: int = 0,
) -> Any:
    """Run an op: on values where all operands have one, on shapes otherwise. Returns a tensor or a tuple.

    Scalars among the operands become constants of the dtype of the first tensor.

    Raises:
        PyBudaError: operands that do not fit the op; the message names both.
    """
    recorded = trace.current()
    name = recorded.claim(op_type, name) if recorded is not None else name or f"{op_type}_{next(_unrecorded)}"
    values = _values(operands)
    try:
        with _labelled(name, op_type):
            results = compute(*values)
    except PyBudaError as error:
        raise PyBudaError(f"{op_type} {name!r}: {error}") from None
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        shapes = ", ".join(str(tuple(value.shape)) for value in values)
        raise PyBudaError(f"{op_type} {name!r} on shapes {shapes}: {error}") from error
    source = operands[format_of_operand] if operands else None
    many = isinstance(results, (tuple, list))
    outputs = []
    for result in results if many else (results,):
        made = Tensor(result)
        if isinstance(source, TensorBase) and result.dtype == values[format_of_operand].dtype:
            made._data_format = source.data_format  # type: ignore[attr-defined]
        made.src_op = name
        outputs.append(made)
    if recorded is not None:
        recorded.ops[name] = trace.OpRecord(name, op_type, operands, dict(attributes or {}), tuple(outputs))
    return tuple(outputs) if many else outputs[0]


def _labelled(name: str, op_type: str) -> contextlib.AbstractContextManager[object]:
    """Let a graph that is being traced know what the program calls the op."""
    if not has_preserved_node_meta():
        return contextlib.nullcontext()
    return annotate({LABEL: (name, op_type)})


def _values(operands: tuple[Any, ...]) -> list[torch.Tensor]:
    known = [None if isinstance(o, (int, float)) else trace.value_of(o) for o in operands]
    first = next((value for value in known if value is not None), torch.zeros(()))
    values = [
        torch.tensor(operand, dtype=first.dtype, device=first.device) if value is None else value
        for operand, value in zip(operands, known, strict=True)
    ]
    if any(value.is_meta for value in values):
        # Made anew, since a sparse operand has no meta form that ops take.
        return [torch.empty(value.shape, dtype=value.dtype, device="meta") for value in values]
    return values

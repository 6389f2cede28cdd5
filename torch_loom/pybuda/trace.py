"""What ops share: the values bound to parameters, names, and the record of what ran."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.traceback import annotate, has_preserved_node_meta

from torch_loom.compiler.frontend import LABEL
from torch_loom.errors import PyBudaError

__all__ = ["OpRecord", "Trace", "bind", "current", "record", "value_of"]


@dataclass(frozen=True)
class OpRecord:
    """One op that ran in a module's forward."""

    name: str
    op_type: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[Any, ...]


@dataclass
class Trace:
    """The ops of one forward, by name; a name appears once."""

    ops: dict[str, OpRecord] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def claim(self, op_type: str, name: str) -> str:
        """Return the name of an op, generated if it is blank.

        Raises:
            PyBudaError: another op of the module has it.
        """
        while not name:
            made = f"{op_type}_{next(self._numbers)}"
            name = "" if made in self.ops else made
        if name in self.ops:
            raise PyBudaError(
                f"two ops of the module are called {name!r}: give each op its own name, or '' for a made one"
            )
        return name


_trace: ContextVar[Trace | None] = ContextVar("_trace", default=None)
_bound: ContextVar[Mapping[int, torch.Tensor]] = ContextVar("_bound", default={})  # noqa: B039 (never changed)
_outside = itertools.count()


@contextlib.contextmanager
def record() -> Iterator[Trace]:
    """Record the ops that this thread runs within."""
    trace = Trace()
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)


@contextlib.contextmanager
def bind(values: Mapping[int, torch.Tensor]) -> Iterator[None]:
    """Within, parameters and constants (by ``id``) have these values: those of a device."""
    token = _bound.set(values)
    try:
        yield
    finally:
        _bound.reset(token)


def current() -> Trace | None:
    """Return the trace of this thread, or None."""
    return _trace.get()


def value_of(operand: Any) -> torch.Tensor:
    """Return the torch tensor of an op's operand: of meta type where only a shape is known.

    Raises:
        PyBudaError: a parameter without value, or something that is no tensor.
    """
    bound = _bound.get().get(id(operand))
    if bound is not None:
        return bound
    if isinstance(operand, torch.Tensor):
        return operand
    value = getattr(operand, "_value", None)
    if not isinstance(value, torch.Tensor):
        kind = type(operand).__name__
        raise PyBudaError(f"an operand is a tensor or parameter with a value, not {kind} {operand!r}")
    return value


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
    from torch_loom.pybuda.tensor import Tensor, TensorBase

    trace = _trace.get()
    name = trace.claim(op_type, name) if trace is not None else name or f"{op_type}_{next(_outside)}"
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
    if trace is not None:
        trace.ops[name] = OpRecord(name, op_type, operands, dict(attributes or {}), tuple(outputs))
    return tuple(outputs) if many else outputs[0]


def _labelled(name: str, op_type: str) -> contextlib.AbstractContextManager[object]:
    """Let a graph that is being traced know what the program calls the op."""
    if not has_preserved_node_meta():
        return contextlib.nullcontext()
    return annotate({LABEL: (name, op_type)})


def _values(operands: tuple[Any, ...]) -> list[torch.Tensor]:
    known = [None if isinstance(o, (int, float)) else value_of(o) for o in operands]
    first = next((value for value in known if value is not None), torch.zeros(()))
    values = [
        torch.tensor(operand, dtype=first.dtype, device=first.device) if value is None else value
        for operand, value in zip(operands, known, strict=True)
    ]
    if any(value.is_meta for value in values):
        # Made anew, since a sparse operand has no meta form that ops take.
        return [torch.empty(value.shape, dtype=value.dtype, device="meta") for value in values]
    return values

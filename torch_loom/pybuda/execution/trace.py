"""What ops share: the values bound to parameters, names, and the record of what ran."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_loom.errors import PyBudaError


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
_place: ContextVar[torch.device | None] = ContextVar("_place", default=None)


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
def bind(values: Mapping[int, torch.Tensor], device: torch.device | None = None) -> Iterator[None]:
    """Within, parameters and constants (by ``id``) have these values, and all others move to ``device``."""
    token, place = _bound.set(values), _place.set(device)
    try:
        yield
    finally:
        _bound.reset(token)
        _place.reset(place)


_whole: ContextVar[bool] = ContextVar("_whole", default=False)


@contextlib.contextmanager
def whole_inputs() -> Iterator[None]:
    """Within, inputs are one sample each, whatever their first dimension is, as for ``pybuda_compile``."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def takes_whole_inputs() -> bool:
    """Whether this thread runs modules on one sample each."""
    return _whole.get()


def current() -> Trace | None:
    """Return the trace of this thread, or None."""
    return _trace.get()


def device() -> torch.device | None:
    """Return the device of the module that this thread runs, or None outside of one."""
    return _place.get()


def value_of(operand: Any) -> torch.Tensor:
    """Return the torch tensor of an op's operand: of meta type where only a shape is known.

    Raises:
        PyBudaError: a parameter without value, or something that is no tensor.
    """
    bound = _bound.get().get(id(operand))
    if bound is not None:
        return bound
    value = operand if isinstance(operand, torch.Tensor) else getattr(operand, "_value", None)
    if not isinstance(value, torch.Tensor):
        kind = type(operand).__name__
        raise PyBudaError(f"an operand is a tensor or parameter with a value, not {kind} {operand!r}")
    place = _place.get()
    # A tensor that the program makes within forward stands on the host.
    return value if place is None or value.device == place or value.is_meta else value.to(place)

"""Arithmetic on sizes, done while a model is read.

Models compute shapes with the same operators as data: ``Shape``, ``Gather``, ``Mul``, ``Concat``. As tensors,
sizes would depend on values; here they are arrays of Python integers and of proxies that stand for sizes of
the run. So the graph has ``x.shape[0] * 12`` in the place of six operators, and can be exported.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import fx

__all__ = ["OPERATORS", "array", "entries"]

Array = Any  # of dtype object


def array(values: Sequence[Any] | Any) -> Array:
    """Return an array of integers and proxies; numpy would take proxies apart."""
    if not isinstance(values, list | tuple):
        scalar = np.empty((), dtype=object)
        scalar[()] = values
        return scalar
    made = np.empty(len(values), dtype=object)
    for number, value in enumerate(values):
        made[number] = value
    return made


def entries(values: Array) -> Any:
    """Return nested lists of integers and nodes, or one of them."""
    return fx.node.map_aggregate(values.tolist(), lambda one: one.node if isinstance(one, fx.Proxy) else one)


def choose(condition: bool, x: int, y: int) -> int:
    """Return one of two."""
    return x if condition else y


def _each(function: Callable[..., Any]) -> Callable[..., Array]:
    def compute(*values: Array) -> Array:
        broadcast = np.broadcast_arrays(*values)
        made = np.empty(broadcast[0].shape, dtype=object)
        for place in np.ndindex(made.shape):
            made[place] = function(*(one[place] for one in broadcast))
        return made

    return compute


def _is_size(value: Any) -> bool:
    return isinstance(value, fx.Proxy) and bool(value.node.meta.get("is_size"))


def _equal(x: Any, y: Any) -> Any:
    for one, other in ((x, y), (y, x)):
        if _is_size(one) and isinstance(other, int) and other < 0:
            return False
    return x == y


def _where(condition: Any, x: Any, y: Any) -> Any:
    if not isinstance(condition, fx.Proxy):
        return x if condition else y
    return condition.tracer.create_proxy("call_function", choose, (condition, x, y), {})


def _divide(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return int(x / y) if abs(x) < 2**52 else x // y
    return x // y


def _slice(x: Array, starts: Array, ends: Array, axes: Any = None, steps: Any = None) -> Array:
    numbers = [_numbers(starts), _numbers(ends), [0] if axes is None else _numbers(axes)]
    [start], [end], [axis] = numbers
    [step] = [1] if steps is None else _numbers(steps)
    if x.ndim != 1 or axis not in (0, -1):
        raise NotImplementedError
    return x[start:end:step]


def _numbers(values: Array) -> list[int]:
    flat: list[Any] = values.reshape(-1).tolist()
    if not all(isinstance(one, int) for one in flat):
        raise NotImplementedError
    return flat


def _gather(x: Array, indices: Array, axis: int = 0) -> Array:
    made = np.take(x, np.array(_numbers(indices)).reshape(indices.shape), axis)
    return made if isinstance(made, np.ndarray) else array(made)


def _unsqueeze(x: Array, axes: Any) -> Array:
    return np.expand_dims(x, tuple(_axes(axes)))


def _squeeze(x: Array, axes: Any = None) -> Array:
    return np.squeeze(x, None if axes is None else tuple(_axes(axes)))


def _axes(axes: Any) -> list[int]:
    return _numbers(axes) if isinstance(axes, np.ndarray) else list(axes)


def _concat(*values: Array, axis: int) -> Array:
    return np.concatenate(values, axis)


def _reshape(x: Array, shape: Array, allowzero: int = 0) -> Array:
    return x.reshape(_numbers(shape))


def _product(x: Array, axes: Any = None, keepdims: int = 1) -> Array:
    if x.ndim != 1:
        raise NotImplementedError
    made: Any = 1
    for one in x:
        made = one * made if isinstance(made, int) and made == 1 else made * one
    return array([made] if keepdims else made)


def _cast(x: Array, to: int) -> Array:
    if to not in (6, 7):  # int32 and int64
        raise NotImplementedError
    return x


def _range(start: Array, limit: Array, delta: Array) -> Array:
    return array(list(range(*(one for values in (start, limit, delta) for one in _numbers(values)))))


def _identity(x: Array) -> Array:
    return x


OPERATORS: dict[str, Callable[..., Array]] = {
    "Add": _each(operator.add),
    "Sub": _each(operator.sub),
    "Mul": _each(operator.mul),
    "Div": _each(_divide),
    "Neg": _each(operator.neg),
    "Equal": _each(_equal),
    "Where": _each(_where),
    "Gather": _gather,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Concat": _concat,
    "Reshape": _reshape,
    "ReduceProd": _product,
    "Cast": _cast,
    "Range": _range,
    "Identity": _identity,
}
"""What computes with sizes: with ONNX's attributes by name; NotImplementedError: do it with tensors."""

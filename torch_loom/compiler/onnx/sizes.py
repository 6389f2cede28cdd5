"""Arithmetic on sizes, done while a model is read.

Models compute shapes with the same operators as data: ``Shape``, ``Gather``, ``Mul``, ``Concat``. As tensors,
sizes would depend on values; here they are arrays of Python integers and of proxies that stand for sizes of
the run. So the graph has ``x.shape[0] * 12`` in the place of six operators, and can be exported. They keep
the dtype that the model gives them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

MAX_SIZES = 4096
"""Elements of an array: a model computes larger arrays with tensors."""
MAX_BITS = 64 * 64
"""Of a number: each size of the run may have 64."""
Array = Any  # of dtype object
_INTEGERS = (torch.int64, torch.int32)


@dataclass(frozen=True, eq=False)
class Sizes:
    """Integers or booleans that a model computes with.

    Attributes:
        values: Python's, and proxies.
        dtype: in the model: int64, int32 or bool.
    """

    values: Array
    dtype: torch.dtype = torch.int64

    @property
    def is_known(self) -> bool:
        """Whether no value waits for the run."""
        return all(isinstance(each, int) for each in self.values.reshape(-1).tolist())


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
    return fx.node.map_aggregate(
        values.tolist(), lambda each: each.node if isinstance(each, fx.Proxy) else each
    )


def choose(condition: bool, x: int, y: int) -> int:
    """Return one of two."""
    return x if condition else y


def trunc_div(x: int, y: int) -> int:
    """Divide towards zero, as ONNX does."""
    return -(-x // y) if (x < 0) != (y < 0) else x // y


def _each(function: Callable[..., Any]) -> Callable[..., Array]:
    def compute(*values: Array) -> Array:
        if math.prod(np.broadcast_shapes(*(value.shape for value in values))) > MAX_SIZES:
            raise NotImplementedError
        broadcast = np.broadcast_arrays(*values)
        made = np.empty(broadcast[0].shape, dtype=object)
        for place in np.ndindex(made.shape):
            taken = [each[place] for each in broadcast]
            made[place] = _bounded(function(*taken), sum(map(_num_bits, taken)))
        return made

    return compute


def _num_bits(value: Any) -> int:
    """Return how many bits a number has at most."""
    return int(value).bit_length() if isinstance(value, int) else value.node.meta.get("num_bits", 64)


def _bounded(value: Any, num_bits: int) -> Any:
    """Note how many bits a number has at most: Python's integers have no end, unlike a model's."""
    if isinstance(value, fx.Proxy):
        if num_bits > MAX_BITS:
            raise NotImplementedError
        value.node.meta["num_bits"] = num_bits
    return value


def _is_size(value: Any) -> bool:
    """Whether a proxy stands for a number that is not negative."""
    return isinstance(value, fx.Proxy) and bool(value.node.meta.get("is_size"))


def _keeps_sizes(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Note that the result is not negative where its operands are not."""

    def compute(x: Any, y: Any) -> Any:
        made = function(x, y)
        if isinstance(made, fx.Proxy):
            made.node.meta["is_size"] = _is_not_negative(x) and _is_not_negative(y)
        return made

    return compute


def _is_not_negative(value: Any) -> bool:
    return value >= 0 if isinstance(value, int) else _is_size(value)


def _equal(x: Any, y: Any) -> Any:
    for each, other in ((x, y), (y, x)):
        if _is_size(each) and isinstance(other, int) and other < 0:
            return False
    return x == y


def _where(condition: Any, x: Any, y: Any) -> Any:
    if not isinstance(condition, fx.Proxy):
        return x if condition else y
    return condition.tracer.create_proxy("call_function", choose, (condition, x, y), {})


def _divide(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return trunc_div(x, y)
    if _is_not_negative(x) and _is_not_negative(y):
        return x // y
    proxy = x if isinstance(x, fx.Proxy) else y
    return proxy.tracer.create_proxy("call_function", trunc_div, (x, y), {})


def _slice(x: Array, starts: Array, ends: Array, axes: Any = None, steps: Any = None) -> Array:
    numbers = [_numbers(starts), _numbers(ends), [0] if axes is None else _numbers(axes)]
    [start], [end], [axis] = numbers
    [step] = [1] if steps is None else _numbers(steps)
    if x.ndim != 1 or axis not in (0, -1):
        raise NotImplementedError
    return x[start:end:step]


def _numbers(values: Array) -> list[int]:
    flat: list[Any] = values.reshape(-1).tolist()
    if not all(isinstance(each, int) for each in flat):
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
    for each in x:
        num_bits = _num_bits(made) + _num_bits(each)
        made = each * made if isinstance(made, int) and made == 1 else made * each
        made = _bounded(made, num_bits)
    return array([made] if keepdims else made)


def _range(start: Array, limit: Array, delta: Array) -> Array:
    first, end, step = (number for values in (start, limit, delta) for number in _numbers(values))
    if step == 0 or (end - first) // step > MAX_SIZES:
        raise NotImplementedError
    return array(list(range(first, end, step)))


def _identity(x: Array) -> Array:
    return x


OPERATORS: dict[str, Callable[..., Array]] = {
    "Add": _each(_keeps_sizes(operator.add)),
    "Sub": _each(operator.sub),
    "Mul": _each(_keeps_sizes(operator.mul)),
    "Div": _each(_keeps_sizes(_divide)),
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
    "Range": _range,
    "Identity": _identity,
}
"""What computes with sizes: with ONNX's attributes by name; NotImplementedError: do it with tensors."""
# Inputs beyond the first that are places and the like, of a dtype of their own.
_FIRST_ALONE = frozenset({"Gather", "Slice", "Unsqueeze", "Squeeze", "Reshape", "ReduceProd"})


def compute(name: str, given: Sequence[Sizes | None], attributes: dict[str, Any]) -> Sizes:
    """Return what an operator makes of sizes.

    Raises:
        NotImplementedError: it is to be computed with tensors, as where a number does not fit its dtype.
    """
    if name == "Cast":
        made = _cast(given[0], **attributes)
    elif name in OPERATORS:
        same = given[1:] if name == "Where" else given[:1] if name in _FIRST_ALONE else given
        dtypes = {each.dtype for each in same if each is not None}
        if len(dtypes) != 1:
            raise NotImplementedError
        values = OPERATORS[name](*(None if each is None else each.values for each in given), **attributes)
        made = Sizes(values, torch.bool if name == "Equal" else dtypes.pop())
    else:
        raise NotImplementedError
    if made.values.size > MAX_SIZES:
        raise NotImplementedError
    limits = None if made.dtype is torch.bool else torch.iinfo(made.dtype)
    known = [each for each in made.values.reshape(-1).tolist() if isinstance(each, int)]
    if limits is not None and not all(limits.min <= each <= limits.max for each in known):
        raise NotImplementedError
    return made


def _cast(given: Sizes | None, to: torch.dtype, **_: Any) -> Sizes:
    if given is None or to not in _INTEGERS or (given.dtype is torch.bool and not given.is_known):
        raise NotImplementedError
    if given.dtype is not torch.bool:
        return Sizes(given.values, to)
    flat = [int(each) for each in given.values.reshape(-1).tolist()]
    return Sizes(array(flat).reshape(given.values.shape), to)

"""Functions of single elements, and sums of many, as a Tensix chip computes them: mode ``silicon``.

Products, sums and differences of two tensors are the matrix unit's (ELWMUL, ELWADD, ELWSUB), sums over a
dimension and means are its GAPOOL, functions the programs of the vector unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.numerics._ops import NONE, ops
from torch_loom.numerics._silicon import is_blackhole, without_blocks
from torch_loom.numerics.emulation.operands import is_float, operand, operands
from torch_loom.numerics.emulation.precision import Precision
from torch_loom.numerics.emulation.rules import MULTIPLICATIONS
from torch_loom.numerics.formats import ExponentFamily

if TYPE_CHECKING:
    from torch_loom.numerics.emulation.mode import Emulation

# As the ops take them.
_OPERATIONS = {
    **dict.fromkeys(MULTIPLICATIONS, 0),
    **dict.fromkeys(("add", "__add__", "__radd__"), 1),
    **dict.fromkeys(("sub", "subtract", "__sub__"), 2),
}
_FUNCTIONS = {"reciprocal": 0, "sqrt": 1, "rsqrt": 2, "exp": 3, "gelu": 4, "tanh": 5, "sigmoid": 6}
_FACE = 16


def has_rule(how: Precision, base: str) -> bool:
    """Whether a function has a rule of its own here."""
    if not how.silicon or how.format.is_integer:
        return False
    # Blackhole's reciprocal is a program that is not public in the form of the others.
    is_missing = base == "reciprocal" and is_blackhole(how.silicon)
    return (base in _OPERATIONS or base in _FUNCTIONS or base in _REDUCTIONS) and not is_missing


def value_of(
    emulation: Emulation, how: Precision, base: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor | None:
    """What a function with a rule returns, not yet packed; None: no rule for these arguments."""
    args, kwargs = _as_positions(args, kwargs, base in _OPERATIONS)
    if not args or not is_float(args[0]):
        return None
    if base in _OPERATIONS:
        return _of_two(emulation, how, _OPERATIONS[base], args, kwargs)
    if base in _FUNCTIONS:
        has_only_input = len(args) == 1 and kwargs in ({}, {"approximate": "none"}, {"approximate": "tanh"})
        return _function(emulation, how, _FUNCTIONS[base], args[0]) if has_only_input else None
    if not set(kwargs) <= {"dim", "keepdim"} and base in ("sum", "mean"):
        return None
    return _REDUCTIONS[base](how, operand(args[0], how, emulation.weights), *args[1:], **kwargs)


def _as_positions(
    args: tuple[Any, ...], kwargs: dict[str, Any], takes_two: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments under the names that the functions here have; operands by their places."""
    named = {{"axis": "dim", "keepdims": "keepdim"}.get(name, name): each for name, each in kwargs.items()}
    for place, name in enumerate(("input", "other") if takes_two else ("input",)):
        if name in named and len(args) == place:
            args = (*args, named.pop(name))
    if args and isinstance(args[0], Tensor) and named.get("dtype") in (None, args[0].dtype):
        named.pop("dtype", None)
    return args, named


def _of_two(
    emulation: Emulation, how: Precision, operation: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor | None:
    is_scaled = kwargs.get("alpha", 1) != 1
    if len(args) != 2 or not is_float(args[1]) or is_scaled or not set(kwargs) <= {"alpha"}:
        return None
    if args[0].dtype is not args[1].dtype:
        return None
    left, right = operands(args, how, emulation.weights)
    value: Tensor = ops.elementwise(
        left, right, operation, how.fidelity.value, how.accumulate.value, how.silicon
    )
    return value


def _function(emulation: Emulation, how: Precision, function: int, x: Tensor) -> Tensor:
    value: Tensor = ops.function(
        operand(x, how, emulation.weights), function, how.accumulate.value, how.silicon
    )
    return value


# ---- sums: over dimensions, one after another, and over windows


def _dims_of(x: Tensor, dim: Any) -> list[int] | None:
    """The dimensions that a reduction means, from 0 on; None: PyTorch refuses them in its own words."""
    dims = list(range(x.dim())) if dim is None or dim in ((), []) else dim
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not all(type(each) is int and -x.dim() <= each < x.dim() for each in dims):
        return None
    dims = sorted(each % x.dim() for each in dims)
    return dims if dims and len(set(dims)) == len(dims) and x.numel() else None


def _reduced(how: Precision, x: Tensor, dim: Any, keepdim: Any, *, is_mean: bool) -> Tensor | None:
    dims = _dims_of(x, dim)
    if dims is None or not isinstance(keepdim, bool):
        return None
    for each in reversed(dims):
        x = _sums(how, x.movedim(each, -1), 1 / x.shape[each] if is_mean else 1.0)
        if keepdim:
            x = x.unsqueeze(each)
    return x


def _sum(how: Precision, input: Tensor, dim: Any = None, keepdim: Any = False) -> Tensor | None:
    return _reduced(how, input, dim, keepdim, is_mean=False)


def _mean(how: Precision, input: Tensor, dim: Any = None, keepdim: Any = False) -> Tensor | None:
    return _reduced(how, input, dim, keepdim, is_mean=True)


def _adaptive_pool(how: Precision, input: Tensor, output_size: Any, *, dimensions: int) -> Tensor | None:
    sizes = [output_size] * dimensions if isinstance(output_size, int) else list(output_size)
    if not dimensions < input.dim() <= dimensions + 2 or sizes != [1] * dimensions:
        return None
    return _mean(how, input, list(range(-dimensions, 0)), True)


def _pool(
    how: Precision,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dimensions: int,
) -> Tensor | None:
    def sizes(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else [*value]
        return values * dimensions if len(values) == 1 else values

    kernel = sizes(kernel_size)
    steps = sizes(kernel_size if stride is None or stride in ((), []) else stride)
    edges = sizes(padding)
    if not {len(kernel), len(steps), len(edges)} <= {dimensions}:
        return None
    is_plain = not ceil_mode and (count_include_pad or not any(edges)) and divisor_override != 0
    if not is_plain or not dimensions < input.dim() <= dimensions + 2:
        return None
    # The shape, or PyTorch's refusal.
    pool: Any = getattr(functional, f"avg_pool{dimensions}d")
    shape = pool(input.detach().to("meta"), kernel_size, stride, padding).shape
    windows = functional.pad(input, [size for size in reversed(edges) for _ in range(2)])
    for i, (size, step) in enumerate(zip(kernel, steps, strict=True)):
        windows = windows.unfold(input.dim() - dimensions + i, size, step)
    count = math.prod(kernel)
    return _sums(how, windows.flatten(-dimensions), 1 / (divisor_override or count)).reshape(shape)


def _sums(how: Precision, windows: Tensor, factor: float) -> Tensor:
    """The sums over the last dimension, each of 16 values multiplied by the factor in 16 bits and added.

    All passes of 16 values come before the next 16. In a product they come so where each 16 have the tile of
    32 for themselves; the others are zeros, which change nothing.
    """
    rows = windows.flatten(0, -2) if windows.dim() > 1 else windows.unsqueeze(0)
    depth = rows.shape[1]
    faces = -(-depth // _FACE)
    rows = functional.pad(rows, (0, faces * _FACE - depth)).reshape(-1, faces, _FACE)
    spread = functional.pad(rows, (0, _FACE)).flatten(-2)
    is_short = how.format.exponent_family is ExponentFamily.A
    kept = torch.tensor(factor, dtype=torch.float16 if is_short else torch.bfloat16).item()
    scaler = torch.full((1, spread.shape[1]), kept, dtype=windows.dtype, device=windows.device)
    sums: Tensor = ops.matmul(
        scaler,
        spread.transpose(0, 1),
        how.fidelity.value,
        how.accumulate.value,
        without_blocks(how.silicon),
        NONE,
        how.made(how.format),
    )
    return sums.reshape(windows.shape[:-1])


_REDUCTIONS: dict[str, Callable[..., Tensor | None]] = {
    "sum": _sum,
    "mean": _mean,
    **{
        f"adaptive_avg_pool{dimensions}d": partial(_adaptive_pool, dimensions=dimensions)
        for dimensions in (1, 2, 3)
    },
    **{f"avg_pool{dimensions}d": partial(_pool, dimensions=dimensions) for dimensions in (1, 2, 3)},
}

"""The ops of ``loom_numerics``, loaded, with their rules under vmap."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_loom.errors import ExtensionError

NONE = 255  # what the ops take for a format that is not wanted
WHOLE = 255  # the fidelity of operands that fit: nothing is masked


def _load() -> Any:
    try:
        importlib.import_module("torch_loom._C").register_numerics()
    except ImportError as error:
        raise ExtensionError(
            f"torch_loom.numerics needs the extension torch_loom._C, which could not be loaded ({error}): "
            "build torch-loom again"
        ) from error
    return torch.ops.loom_numerics


ops = _load()

Rule = Callable[..., tuple[Any, Any]]


def _first(tensor: Tensor, dim: int | None) -> Tensor:
    return tensor if dim is None else tensor.movedim(dim, 0)


def _along_last(op: Callable[..., Any]) -> Rule:
    """The rule of an op on single elements or blocks along the last dimension."""

    def rule(info: Any, in_dims: tuple[int | None, ...], self: Tensor, *args: Any, **kwargs: Any) -> Any:
        batched = _first(self, in_dims[0])
        if batched.dim() > 1:
            return op(batched, *args, **kwargs), 0
        # Scalars: neighbours of the batch share no block.
        return op(batched.unsqueeze(-1), *args, **kwargs).squeeze(-1), 0

    return rule


def _in_place(info: Any, in_dims: tuple[int | None, ...], self: Tensor, *args: Any, **kwargs: Any) -> Any:
    batched = _first(self, in_dims[0])
    ops.quantize_(batched if batched.dim() > 1 else batched.unsqueeze(-1), *args, **kwargs)
    return None, None


def _one_by_one(op: Callable[..., Any]) -> Rule:
    """The rule of an op whose batches do not mix: each by itself."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
        results = []
        for i in range(info.batch_size):
            chosen = [
                arg.select(dim, i) if isinstance(arg, Tensor) and dim is not None else arg
                for arg, dim in zip(args, in_dims, strict=False)
            ]
            results.append(op(*chosen, *args[len(chosen) :], **kwargs))
        if isinstance(results[0], tuple):
            return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0,) * len(results[0])
        return torch.stack(results), 0

    return rule


def _matmul(
    info: Any, in_dims: tuple[int | None, ...], self: Tensor, other: Tensor, *args: Any, **kwargs: Any
) -> Any:
    left, right = _first(self, in_dims[0]), _first(other, in_dims[1])
    is_row = left.dim() - (in_dims[0] is not None) == 1
    is_column = right.dim() - (in_dims[1] is not None) == 1
    left = left.unsqueeze(-2) if is_row else left
    right = right.unsqueeze(-1) if is_column else right
    ranks = [left.dim() - (in_dims[0] is not None), right.dim() - (in_dims[1] is not None)]

    def aligned(tensor: Tensor, dim: int | None, rank: int) -> Tensor:
        if dim is None:
            return tensor
        return tensor.reshape(tensor.shape[0], *([1] * (max(ranks) - rank)), *tensor.shape[1:])

    result = ops.matmul(
        aligned(left, in_dims[0], ranks[0]), aligned(right, in_dims[1], ranks[1]), *args, **kwargs
    )
    result = result.squeeze(-1) if is_column else result
    return (result.squeeze(-1 if is_column else -2) if is_row else result), 0


def _linear(
    info: Any,
    in_dims: tuple[int | None, ...],
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if in_dims[1] is None and in_dims[2] is None:
        return ops.linear(_first(self, in_dims[0]), weight, bias, *args, **kwargs), 0
    return _one_by_one(ops.linear)(info, in_dims, self, weight, bias, *args, **kwargs)


def _elementwise(
    info: Any, in_dims: tuple[int | None, ...], self: Tensor, other: Tensor, *args: Any, **kwargs: Any
) -> Any:
    given = ((self, in_dims[0]), (other, in_dims[1]))
    rank = max(tensor.dim() - (dim is not None) for tensor, dim in given)

    def aligned(tensor: Tensor, dim: int | None) -> Tensor:
        batched = _first(tensor, dim)
        if dim is None:
            return batched
        return batched.reshape(batched.shape[0], *([1] * (rank + 1 - batched.dim())), *batched.shape[1:])

    return ops.elementwise(*(aligned(*each) for each in given), *args, **kwargs), 0


def _register() -> None:
    rules: dict[str, Rule] = {
        "quantize": _along_last(ops.quantize),
        "quantize_": _in_place,
        "operand": _along_last(ops.operand),
        "quantize_counted": _one_by_one(ops.quantize_counted),
        "pack": _one_by_one(ops.pack),
        "unpack": _one_by_one(ops.unpack),
        "elementwise": _elementwise,
        "function": _along_last(ops.function),
        "matmul": _matmul,
        "linear": _linear,
        "convolution": _one_by_one(ops.convolution),
        "convolution_backward": _one_by_one(ops.convolution_backward),
    }
    for name, rule in rules.items():
        torch.library.register_vmap(f"loom_numerics::{name}", rule)


_register()

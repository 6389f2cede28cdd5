"""The ops that a program issues on a GPU, without one: a dispatch mode over tensors of the device ``meta``.

What a GPU's kernels fuse and the meta device takes apart is put together again before it is recorded:
attention and dropout. Numbers that come from nothing but constants are computed, so that a program that
looks at a mask goes on as it would. :mod:`benchmarks.clock_error` reads ops from here; the tape of a dry
run is another source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from torch_loom.chips.cost import Op
from torch_loom.chips.cost.calls import described, of_call

aten = torch.ops.aten

# Larger tensors are not computed.
MAX_KNOWN_ITEMS = 1 << 16


class _Recorder(TorchDispatchMode):
    """Keeps the ops on tensors of a device, and the values of small ones."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.ops: list[Op] = []
        self.known = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [item for item in tree_flatten((args, kwargs))[0] if isinstance(item, torch.Tensor)]
        if func is aten._local_scalar_dense.default and self._is_ours(tensors[0]):
            self.ops.append(Op("_local_scalar_dense", (described(tensors[0]),), ()))
            return self.known[tensors[0]].item() if tensors[0] in self.known else 0
        result = func(*args, **kwargs)
        if func is aten.convolution.default and result.dim() == 4:
            result = _laid_out(result, tensors[:2])
        results = [item for item in tree_flatten(result)[0] if isinstance(item, torch.Tensor)]
        is_small = len(results) == 1 and results[0].numel() <= MAX_KNOWN_ITEMS
        known = self._value(func, args, kwargs, tensors) if is_small else None
        if known is not None and self._is_ours(results[0]):
            self.known[results[0]] = known
        elif func._schema.is_mutable and tensors:
            self.known.pop(tensors[0], None)
        if any(self._is_ours(item) for item in (*tensors, *results)) and not func.is_view:
            self._keep(func, args, kwargs, results)
        return result

    def _is_ours(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self.device

    def _value(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> torch.Tensor | None:
        """Return what the op gives for numbers that are known; None if they are not."""
        if any(item not in self.known for item in tensors):
            return None
        if not tensors and not func.__name__.startswith(("arange", "ones", "zeros", "full", "scalar_tensor")):
            return None

        def real(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                return self.known[item]
            return torch.device("cpu") if isinstance(item, torch.device) else item

        with torch.utils._python_dispatch._disable_current_modes():
            try:
                value = func(*tree_map(real, args), **tree_map(real, kwargs))
            except (RuntimeError, NotImplementedError):
                return None
        return value if isinstance(value, torch.Tensor) else None

    def _keep(self, func: Any, args: Any, kwargs: Any, results: list[torch.Tensor]) -> None:
        op = of_call(func._schema, args, kwargs, results)
        if not op.outputs and func._schema.is_mutable and not op.lists:
            op = op._replace(outputs=op.inputs[:1])
        self.ops.append(op)


def _laid_out(result: torch.Tensor, operands: list[torch.Tensor]) -> torch.Tensor:
    """Return a convolution's result with channels innermost where an operand has them so, as on a GPU.

    On a device that executes nothing, results do not follow their operands.
    """
    if not any(_is_channels_last(each) for each in operands) or _is_channels_last(result):
        return result
    return torch.empty_like(result, memory_format=torch.channels_last)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


class _Fused(TorchFunctionMode):
    """Sends what a GPU has one kernel for to that kernel's op."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func is torch.nn.functional.dropout:
            return _dropout(func, *args, **kwargs)
        if func is torch._grouped_mm and args[0].dtype != torch.bfloat16:
            return _GroupedProduct.apply(*args[:2])
        return func(*args, **kwargs)


class _GroupedProduct(torch.autograd.Function):
    """Rows of a matrix, in groups, times a matrix of each group: a GPU has one kernel for bfloat16 alone.

    The device meta knows no groups' sizes, they count as equal, and PyTorch's function for it refuses others.
    """

    @staticmethod
    def forward(ctx: Any, left: Any, right: Any) -> Any:
        ctx.save_for_backward(left, right)
        return _product(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        left, right = ctx.saved_tensors
        parts = (each.tensor_split(right.shape[0]) for each in (left, grad))
        for rows, gradients in zip(*parts, strict=True):
            rows.t() @ gradients
        return _product(grad, right.transpose(1, 2)), torch.empty_like(right)


def _product(rows: Any, matrices: Any) -> Any:
    """Multiply each group, and return what an op would have written all of them to."""
    for part, matrix in zip(rows.tensor_split(matrices.shape[0]), matrices, strict=True):
        part @ matrix
    return rows.new_empty(rows.shape[0], matrices.shape[-1])


def _dropout(func: Any, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or p == 0 or inplace or input.device.type == "cpu":
        return func(input, p, training, inplace)
    return aten.native_dropout(input, p, True)[0]


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = (item.repeat_interleave(groups, 1) for item in (key, value))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
    if attn_mask is not None:
        attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if attn_mask is not None and attn_mask.stride(-1) != 1 and attn_mask.shape[-1] > 1:
        # No fused kernel reads such a mask.
        return _unfused_attention(query, key, value, attn_mask, dropout_p, scale)
    gradient = torch.is_grad_enabled() and any(item.requires_grad for item in (query, key, value))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, gradient, dropout_p, is_causal, scale=scale
    )[0]


def _unfused_attention(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, scale: float | None
) -> Any:
    """Attention of single kernels, in float32 for narrower dtypes, as PyTorch's own composition."""
    dtype = query.dtype
    factor = (query.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    query, key, value, mask = (item.float() for item in (query, key, value, mask))
    scores = torch.matmul(query * factor, key.transpose(-2, -1) * factor) + mask
    weights = torch._safe_softmax(scores, -1)
    if dropout_p > 0:
        weights = aten.native_dropout(weights, dropout_p, True)[0]
    return torch.matmul(weights, value).to(dtype)


@contextmanager
def recorded(device: str = "meta") -> Iterator[list[Op]]:
    """Record the ops of the body on tensors of a device, in order, views left out."""
    recorder = _Recorder(device)
    with recorder, _Fused():
        yield recorder.ops


def trace(program: Callable[[], None]) -> list[Op]:
    """Return the ops of a program's second run; the first creates what stays (optimizer state)."""
    with recorded():
        program()
    with recorded() as ops:
        program()
    return ops

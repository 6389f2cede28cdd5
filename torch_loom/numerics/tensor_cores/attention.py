"""Attention under :class:`TensorCores`, as a GPU's fused kernels compute it.

Scores are the float32 sums of the operands' products. Scale, mask and softmax are float32; the exponentials
are rounded to the operands' dtype for the second product, whose sums are then divided by the sum of the
exponentials in float32. All keys are one block. Which blocks a kernel takes, and its exponential, are the
library's: fused kernels were not compared.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from torch_loom.errors import OperandError
from torch_loom.numerics.tensor_cores.fused_layers import WITHOUT_RECURRENT_KERNELS
from torch_loom.patches.attention_layers import with_attention

if TYPE_CHECKING:
    from torch_loom.numerics.tensor_cores.emulation import TensorCores

_OP = "scaled_dot_product_attention"
_FUNCTIONS = (
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)
_RECURRENT = (torch.lstm, torch.ops.aten.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data)


class AttentionMode(TorchFunctionMode):
    """Hands attention to the rule: PyTorch casts halves to float32 before a dispatch mode sees products."""

    def __init__(self, cores: TensorCores) -> None:
        super().__init__()
        self._cores = cores

    def check_script(self, script: Any) -> None:
        """Refuse attention that TorchScript computes: of its products, the mode sees float32 ones.

        Raises:
            OperandError: there is attention in it.
        """
        if _has_attention(script.graph):
            raise OperandError(
                f"tensor_core: {script.name!r} is compiled by TorchScript and has attention in it, whose "
                "sums would be float32's; allowed: the module as it was before torch.jit"
            )

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _RECURRENT:  # oneDNN has a kernel for the whole layer
            with WITHOUT_RECURRENT_KERNELS:
                return func(*args, **kwargs)
        if func in _FUNCTIONS:
            return _attended_or_else(func, self._cores, args, kwargs)
        if func is functional.multi_head_attention_forward:
            return _layer()(*args, **kwargs)
        return func(*args, **kwargs)


def _has_attention(graph: Any) -> bool:
    whole = graph.copy()
    torch._C._jit_pass_inline(whole)
    return bool(whole.findAllNodes(f"aten::{_OP}"))


def _attended_or_else(
    func: Any, cores: TensorCores | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    value = NotImplemented if cores is None else attended(cores, *args, **kwargs)
    return func(*args, **kwargs) if value is NotImplemented else value


@functools.cache
def _layer() -> Any:
    """PyTorch's function of attention layers, with attention by the rule inside."""

    def attention(*args: Any, **kwargs: Any) -> Any:
        return _attended_or_else(functional.scaled_dot_product_attention, _running(), args, kwargs)

    return with_attention(attention)


def attended(
    cores: TensorCores,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return ``scaled_dot_product_attention``; NotImplemented: a GPU has no matrix instructions for it."""
    given = (query, key, value)
    if not all(isinstance(each, Tensor) and each.dim() >= 2 and not each.is_nested for each in given):
        return NotImplemented
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        narrow = torch.get_autocast_dtype(kind)
        query, key, value = (
            each.to(narrow) if each.is_floating_point() and each.dtype != torch.float64 else each
            for each in given
        )
        given = (query, key, value)
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(narrow)
    is_one_dtype = query.dtype == key.dtype == value.dtype
    is_mask = attn_mask is None or attn_mask.dtype is torch.bool or attn_mask.is_floating_point()
    is_whole = all(each.numel() for each in given) and 0.0 <= dropout_p < 1.0
    if not is_one_dtype or not cores.takes(*given) or (is_causal and attn_mask is not None):
        return NotImplemented  # PyTorch refuses what cannot be in its own words
    if not is_mask or not is_whole:
        return NotImplemented
    if enable_gqa and not _are_grouped(query, key, value):
        return NotImplemented
    masked = given if attn_mask is None else (*given, attn_mask)
    if any(torch._C._functorch.is_functorch_wrapped_tensor(each) for each in masked):
        raise _unruled(cores.chip, "the transforms of torch.func")
    if enable_gqa:
        heads = query.shape[-3]
        key, value = (each.repeat_interleave(heads // each.shape[-3], -3) for each in (key, value))
    sizes = (*_batch(query, key), query.shape[-2], key.shape[-2])
    mask = attn_mask
    if is_causal:
        mask = torch.ones(sizes[-2:], dtype=torch.bool, device=query.device).tril()
    kept = None
    if dropout_p > 0.0:
        kept = functional.dropout(torch.ones(sizes, device=query.device), dropout_p) != 0
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    result: Tensor = _Attention.apply(cores, query, key, value, mask, kept, dropout_p, factor)  # type: ignore[no-untyped-call]
    return result


def _unruled(chip: str, what: str) -> OperandError:
    return OperandError(
        f"{_OP}: {what} have no rule on {chip}; allowed: gradients of first order by backward(), or leaving "
        "tensor_core for this call"
    )


def _are_grouped(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether heads of queries share heads of keys and values evenly."""
    if query.dim() < 3 or not key.dim() == value.dim() == query.dim():
        return False
    return all(each.shape[-3] and query.shape[-3] % each.shape[-3] == 0 for each in (key, value))


def _batch(a: Tensor, b: Tensor) -> tuple[int, ...]:
    shape: tuple[int, ...] = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return shape


def _product(cores: TensorCores | None, a: Tensor, b: Tensor) -> Tensor:
    """Float32 sums of batches of any rank; without a mode those of the engine."""
    if cores is None:
        return a.float() @ b.float()
    batch = _batch(a, b)
    left, right = (each.expand(*batch, *each.shape[-2:]).reshape(-1, *each.shape[-2:]) for each in (a, b))
    return cores.product(left, right, op=_OP).view(*batch, a.shape[-2], b.shape[-1])


def _scores(cores: TensorCores | None, q: Tensor, k: Tensor, mask: Tensor | None, factor: float) -> Tensor:
    scores = _product(cores, q, k.transpose(-2, -1)) * factor
    if mask is None:
        return scores
    if mask.dtype is torch.bool:
        return scores.masked_fill(~mask, -math.inf)
    return scores + mask.float()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        cores: TensorCores,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        kept: Tensor | None,
        dropout_p: float,
        factor: float,
    ) -> Tensor:
        scores = _scores(cores, q, k, mask, factor)
        if scores.shape[-1]:
            top = scores.amax(-1, keepdim=True)
            top = top.masked_fill(top == -math.inf, 0.0)  # rows whose keys are all masked
        else:
            top = scores.new_zeros((*scores.shape[:-1], 1))
        shares = (scores - top).exp_()
        total = shares.sum(-1, keepdim=True)
        rounded = shares.to(q.dtype)
        if kept is not None:
            rounded = rounded.masked_fill(~kept, 0.0)
        divisor = total * (1.0 - dropout_p)
        divisor = divisor.masked_fill(divisor == 0, 1.0)
        out = (_product(cores, rounded, v) / divisor).to(q.dtype)
        # A row without keys has shares of zero: exp(-inf - 0).
        spread = torch.where(total == 0, 0.0, top + total.log())
        context.save_for_backward(q, k, v, mask, kept, out, spread)
        context.dropout_p, context.factor, context.chip = dropout_p, factor, cores.chip
        return out

    @staticmethod
    def jvp(context: Any, *tangents: Any) -> Any:
        raise _unruled(context.chip, "derivatives in forward mode")

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise _unruled(context.chip, "gradients of gradients (create_graph=True)")
        q, k, v, mask, kept, out, spread = context.saved_tensors
        cores = _running()
        shares = (_scores(cores, q, k, mask, context.factor) - spread).exp_()
        grown = 1.0 / (1.0 - context.dropout_p) if context.dropout_p < 1.0 else 0.0
        used = shares if kept is None else (shares * grown).masked_fill(~kept, 0.0)
        grad_v = _product(cores, used.to(q.dtype).transpose(-2, -1), grad)
        of_shares = _product(cores, grad, v.transpose(-2, -1))
        if kept is not None:
            of_shares = (of_shares * grown).masked_fill_(~kept, 0.0)
        inner = (grad.float() * out.float()).sum(-1, keepdim=True)
        of_scores = shares * (of_shares - inner)
        rounded = of_scores.to(q.dtype)
        grad_q = _product(cores, rounded, k) * context.factor
        grad_k = _product(cores, rounded.transpose(-2, -1), q) * context.factor
        grad_mask = None
        if context.needs_input_grad[4]:
            grad_mask = of_scores.sum_to_size(mask.shape).to(mask.dtype)
        found = (
            each.sum_to_size(to.shape).to(to.dtype) for each, to in ((grad_q, q), (grad_k, k), (grad_v, v))
        )
        return (None, *found, grad_mask, None, None, None)


def _running() -> TensorCores | None:
    """The innermost mode that runs here; None: the backward runs outside of one."""
    modes: Any = _get_current_dispatch_mode_stack()
    return next((each for each in reversed(modes) if getattr(each, "has_tensor_cores", False)), None)

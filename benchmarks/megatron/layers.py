"""Layers sharded over ranks, with what Megatron-LM and Transformer Engine keep for the backward pass.

Tensors are ``[time, batch, hidden]``. Kernels that are fused there are one function here: what it saves, and
what it takes while it runs, is theirs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Function
from torch.nn import functional

from benchmarks.megatron.arguments import Arguments
from benchmarks.megatron.groups import Groups, gathered, scattered
from torch_loom.device._core.device_index import DEVICE_TYPE


class Column(Function):
    """A product whose outputs are split over ranks: the input is each rank's part of the sequence, or whole.

    Its gradient of the weight is added to ``weight.main_grad`` by the product itself.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: nn.Parameter, bias: torch.Tensor | None, group: Any, splits: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.group, ctx.splits, ctx.has_bias = weight, group, splits, bias is not None
        return _product(gathered(x, group) if splits else x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        whole = gathered(x, ctx.group) if ctx.splits else x
        grad_x = torch.mm(grad.flatten(0, -2), ctx.weight).view(whole.shape)
        if ctx.splits:
            grad_x = scattered(grad_x, ctx.group)
        elif ctx.group is not None:
            dist.all_reduce(grad_x, group=ctx.group)
        add_weight_gradient(ctx.weight, whole, grad)
        return grad_x, None, grad.flatten(0, -2).sum(0) if ctx.has_bias else None, None, None


class Row(Function):
    """A product whose inputs are split over ranks: the output is summed, and split along the sequence."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: nn.Parameter, group: Any, splits: bool) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.group, ctx.splits = weight, group, splits
        y = _product(x, weight, None)
        if splits:
            return scattered(y, group)
        if group is not None:
            dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        whole = gathered(grad, ctx.group) if ctx.splits else grad
        grad_x = torch.mm(whole.flatten(0, -2), ctx.weight).view(x.shape)
        add_weight_gradient(ctx.weight, x, whole)
        return grad_x, None, None, None


class AddedDropout(Function):
    """``residual + dropout(x + bias)``, of which the mask alone is kept."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor, rate: float
    ) -> torch.Tensor:
        ctx.has_bias, ctx.rate = bias is not None, rate
        ctx.mask = None
        if rate == 0.0:
            return x + residual
        y, ctx.mask = torch.native_dropout(x, rate, True)
        return y.add_(residual)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad_x = grad
        if ctx.mask is not None:
            grad_x = torch.ops.aten.native_dropout_backward(grad, ctx.mask, 1 / (1 - ctx.rate))
        return grad_x, grad_x.flatten(0, -2).sum(0) if ctx.has_bias else None, grad, None


class Activated(Function):
    """GELU of ``x + bias``, or SiLU of a half times the other half; ``x`` is kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, is_gated: bool) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.has_bias, ctx.is_gated = bias is not None, is_gated
        if not is_gated:
            return functional.gelu(x, approximate="tanh")
        return functional.glu(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        if ctx.is_gated:
            grad_x = torch.ops.aten.glu_backward(grad, x, -1)
        else:
            grad_x = torch.ops.aten.gelu_backward(grad, x, approximate="tanh")
        return grad_x, grad_x.flatten(0, -2).sum(0) if ctx.has_bias else None, None


class Softmax(Function):
    """Softmax with its mask, which keeps its output and has its gradient in the place of the output's."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(scores, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data.out(grad, y, -1, y.dtype, grad_input=grad)


class Loss(Function):
    """Cross entropy of logits ``[time, batch, vocabulary of this rank]`` in float32; what is kept is their
    softmax, which is computed in their place, and becomes their gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, group: Any, is_fused: bool
    ) -> torch.Tensor:
        most = logits.amax(-1)
        reduce(most, group, dist.ReduceOp.MAX)
        shares = logits - most.unsqueeze(-1) if is_fused else logits.sub_(most.unsqueeze(-1))
        chosen = shares.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        reduce(chosen, group)
        shares = torch.exp(shares) if is_fused else shares.exp_()
        total = shares.sum(-1)
        reduce(total, group)
        loss = torch.log(total) - chosen
        shares.div_(total.unsqueeze(-1))
        ctx.save_for_backward(shares, labels)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        shares, labels = ctx.saved_tensors
        shares.scatter_add_(-1, labels.unsqueeze(-1), grad.unsqueeze(-1))
        return shares.mul_(grad.unsqueeze(-1)), None, None, None


def reduce(x: torch.Tensor, group: Any, how: Any = dist.ReduceOp.SUM) -> None:
    """Reduce over a group in place; None: there are no others."""
    if group is not None:
        dist.all_reduce(x, how, group=group)


def check(x: torch.Tensor) -> None:
    """Let the host ask whether a number is NaN, then whether it is infinite, and wait for either answer."""
    for ask in (torch.isnan, torch.isinf):
        ask(x.detach())
        torch.get_device_module(DEVICE_TYPE).synchronize()


def add_weight_gradient(weight: Any, x: torch.Tensor, grad: torch.Tensor) -> None:
    """Add the product of an input and a gradient to ``weight.main_grad``, without memory of its own."""
    of_rows, of_columns = grad.flatten(0, -2).t(), x.flatten(0, -2)
    if weight.main_grad.dtype == x.dtype:
        torch.addmm(weight.main_grad, of_rows, of_columns, out=weight.main_grad)
    else:
        torch.ops.aten.addmm.dtype_out(
            weight.main_grad, of_rows, of_columns, torch.float32, out=weight.main_grad
        )


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    flat = x.flatten(0, -2)
    y = torch.mm(flat, weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
    return y.view(*x.shape[:-1], -1)


class Shared:
    """What the layers of a rank share: arguments, groups, and memory that lives as long as the process."""

    def __init__(self, arguments: Arguments, groups: Groups, device: torch.device) -> None:
        self.arguments, self.groups, self.device = arguments, groups, device
        self._scores: dict[torch.Size, torch.Tensor] = {}

    def weight(self, *shape: int) -> nn.Parameter:
        """Return a parameter of this rank."""
        return nn.Parameter(torch.empty(shape, dtype=self.arguments.dtype, device=self.device))

    def bias(self, size: int) -> nn.Parameter | None:
        """Return a parameter, or None where linear layers have none."""
        return self.weight(size) if self.arguments.has_bias else None

    def scores(self, like: torch.Tensor, keys: int) -> torch.Tensor:
        """Return what products of queries and keys are given: Megatron's own layers keep it for ever."""
        shape = torch.Size((like.shape[0], like.shape[1], keys))
        if not self.arguments.is_local:
            return like.new_empty(shape)
        if shape not in self._scores:
            self._scores[shape] = like.new_empty(shape)
        return self._scores[shape]


class Norm(nn.Module):
    def __init__(self, shared: Shared, size: int) -> None:
        super().__init__()
        self.weight, self.bias = shared.weight(size), shared.weight(size)
        self.size = (size,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, self.size, self.weight, self.bias)


class Attention(nn.Module):
    """Heads of this rank; of keys and values of another sequence, where there is one."""

    def __init__(self, shared: Shared, is_cross: bool = False) -> None:
        super().__init__()
        own = shared.arguments
        self.shared, self.is_cross = shared, is_cross
        self.width = own.hidden // own.heads
        self.heads, self.groups = own.heads // own.tensor, max(own.groups // own.tensor, 1)
        inputs = self.width * self.heads
        shared_inputs = 2 * self.width * self.groups
        self.norm = Norm(shared, own.hidden)
        first = inputs if is_cross else inputs + shared_inputs
        self.first, self.first_bias = shared.weight(first, own.hidden), shared.bias(first)
        if is_cross:
            self.other = shared.weight(shared_inputs, own.hidden)
            self.other_bias = shared.bias(shared_inputs)
        self.head_norms = (
            nn.ModuleList(Norm(shared, self.width) for _ in range(2)) if own.normalises_heads else None
        )
        self.last, self.last_bias = shared.weight(own.hidden, inputs), shared.bias(own.hidden)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None) -> torch.Tensor:
        own, group = self.shared.arguments, self.shared.groups.tensor
        splits = own.sequence_parallel
        mixed = Column.apply(self.norm(x), self.first, self.first_bias, group, splits)
        query, key, value = self._heads(mixed, memory, group, splits)
        if own.attention == "unfused":
            attended = self._plain(query, key, value)
        else:
            attended = self._flash(query, key, value)
        y = Row.apply(attended, self.last, group, splits)
        return AddedDropout.apply(y, self.last_bias, x, own.hidden_dropout)

    def _heads(
        self, mixed: torch.Tensor, memory: torch.Tensor | None, group: Any, splits: bool
    ) -> tuple[torch.Tensor, ...]:
        """Return queries, keys and values ``[time, batch, heads, width]``."""
        length, batch, _ = mixed.shape
        if self.is_cross:
            assert memory is not None
            other = Column.apply(memory, self.other, self.other_bias, group, splits)
            query = mixed.view(length, batch, self.heads, self.width)
            key, value = other.view(other.shape[0], batch, self.groups, 2 * self.width).chunk(2, -1)
            return query, key, value
        mixed = mixed.view(length, batch, self.groups, -1)
        sizes = [self.heads // self.groups * self.width, self.width, self.width]
        query, key, value = mixed.split(sizes, -1)
        query = query.reshape(length, batch, self.heads, self.width)
        if self.head_norms is not None:
            query, key = self.head_norms[0](query), self.head_norms[1](key)
        if self.shared.arguments.positions == 0:
            query, key = _rotated(query), _rotated(key)
        return query, key, value

    def _plain(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        length, batch = query.shape[:2]
        if self.groups != self.heads:
            key, value = (each.repeat_interleave(self.heads // self.groups, 2) for each in (key, value))
        # [time, batch * heads, width]
        query, key, value = (
            each.reshape(each.shape[0], batch * self.heads, self.width) for each in (query, key, value)
        )
        into = self.shared.scores(query.detach().transpose(0, 1), key.shape[0])
        scores = torch.baddbmm(
            into, query.transpose(0, 1), key.permute(1, 2, 0), beta=0.0, alpha=1 / math.sqrt(self.width)
        )
        del into
        shares = Softmax.apply(scores)
        del scores
        shares = functional.dropout(shares, self.shared.arguments.attention_dropout)
        attended = torch.bmm(shares, value.transpose(0, 1))
        attended = attended.view(batch, self.heads, length, self.width).permute(2, 0, 1, 3)
        return attended.contiguous().view(length, batch, -1)

    def _flash(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        length, batch = query.shape[:2]
        # It takes [batch, time, heads, width], of which copies are made and kept.
        query, key, value = (each.transpose(0, 1).contiguous() for each in (query, key, value))
        attended = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        return attended.permute(2, 0, 1, 3).contiguous().view(length, batch, -1)


class Mlp(nn.Module):
    def __init__(self, shared: Shared) -> None:
        super().__init__()
        own = shared.arguments
        self.shared = shared
        ffn = own.ffn // own.tensor
        self.norm = Norm(shared, own.hidden)
        wide = 2 * ffn if own.is_gated else ffn
        self.first, self.first_bias = shared.weight(wide, own.hidden), shared.bias(wide)
        self.last, self.last_bias = shared.weight(own.hidden, ffn), shared.bias(own.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own, group = self.shared.arguments, self.shared.groups.tensor
        splits = own.sequence_parallel
        y = Column.apply(self.norm(x), self.first, None, group, splits)
        y = Row.apply(Activated.apply(y, self.first_bias, own.is_gated), self.last, group, splits)
        return AddedDropout.apply(y, self.last_bias, x, own.hidden_dropout)


class Layer(nn.Module):
    """Attention, attention to the encoder's outputs where there is one, and an MLP."""

    def __init__(self, shared: Shared, is_cross: bool = False) -> None:
        super().__init__()
        self.attention = Attention(shared)
        self.cross = Attention(shared, is_cross=True) if is_cross else None
        self.mlp = Mlp(shared)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        x = self.attention(x, None)
        if self.cross is not None:
            x = self.cross(x, memory)
        return self.mlp(x)


class Rotated(Function):
    """Rotary positions, by one kernel that keeps nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 1.0


def _rotated(x: torch.Tensor) -> torch.Tensor:
    return Rotated.apply(x)

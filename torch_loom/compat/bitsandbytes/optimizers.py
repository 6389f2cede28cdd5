"""Steps of optimizers whose state is float32, or codes of 8 bits in blocks of 256.

The arithmetic is that of the library's CUDA kernels: in float32, its coefficients too; gradients and
parameters are rounded to their dtype after each change. Where a kernel does something that its siblings do
not (8-bit RMSprop and Adagrad divide the plain gradient), so does the function here.

State may be a tensor of the host: paged memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torch_loom.compat.bitsandbytes.blocks import block_absmax, map_codes, map_values, split_blocks

__all__ = ["update_8bit_blockwise", "update_32bit"]

BLOCK_SIZE = 256
NAMES_32BIT = ["adam", "momentum", "rmsprop", "lion", "adagrad", "lamb", "ademamix", "lars"]
NAMES_8BIT = ["adam", "momentum", "rmsprop", "lion", "adagrad", "ademamix"]
ONE_STATE = ("momentum", "lars", "rmsprop", "adagrad", "lion")
COUPLED_DECAY = ("momentum", "lars", "rmsprop", "adagrad")
"""These add the decay to the gradient; the others shrink the parameter."""
UNLIMITED = ("adagrad", "ademamix")
"""These do not scale their update by its norm."""
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FLOATS_OF_COUPLED_DECAY = (torch.float32, torch.float16)


@dataclass(frozen=True)
class Step:
    """The numbers of a step: values of float32, as a kernel has them."""

    beta1: float
    beta2: float
    beta3: float
    alpha: float
    eps: float
    weight_decay: float
    lr: float
    gradient_scale: float
    number: int

    @staticmethod
    def of(number: int, **values: float) -> Step:
        """Round the values to float32."""
        return Step(number=number, **{name: float(np.float32(value)) for name, value in values.items()})

    @property
    def correction1(self) -> float:
        return _rest(np.float32(self.beta1) ** np.float32(self.number))

    @property
    def correction2(self) -> float:
        return float(np.sqrt(np.float32(_rest(np.float32(self.beta2) ** np.float32(self.number)))))

    @property
    def shrink(self) -> float:
        return _rest(np.float32(self.lr) * np.float32(self.weight_decay))


def update_32bit(
    name: str,
    gradient: Tensor,
    parameter: Tensor,
    state1: Tensor,
    state2: Tensor | None,
    update_norm: Tensor | None,
    max_update_norm: float,
    parameter_norm: float,
    beta1: float,
    beta2: float,
    beta3: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    step: int,
    lr: float,
    gradient_scale: float,
    skip_zeros: bool = False,
) -> None:
    """Update `parameter` and its float32 state in place.

    With a positive `max_update_norm`, `update_norm` [1] keeps the sum of squares of the update, and an update
    whose norm exceeds that part of `parameter_norm` is scaled down. With `skip_zeros` nothing changes where
    the gradient is zero.
    """
    _check_name(name, NAMES_32BIT)
    if gradient.dtype not in (FLOATS_OF_COUPLED_DECAY if name in COUPLED_DECAY else FLOATS):
        types = f"grad {gradient.dtype}, optimizer {state1.dtype}"
        raise ValueError(f"Gradient+optimizer bit data type combination not supported: {types}")
    if name == "ademamix":
        _check_moments(state1, gradient)
    numbers = Step.of(
        step,
        beta1=beta1,
        beta2=beta2,
        beta3=beta3,
        alpha=alpha,
        eps=eps,
        weight_decay=weight_decay,
        lr=lr,
        gradient_scale=gradient_scale,
    )
    kept = [state for state in (state1, state2) if state is not None]
    on_device = [
        state.to(gradient.device) for state in kept
    ]  # the very tensors, unless they are paged memory
    states = [*on_device[0], on_device[1]] if name == "ademamix" else on_device
    limit = max_update_norm * parameter_norm + (eps if name in ONE_STATE else 0.0)
    if max_update_norm > 0.0 and update_norm is not None:
        if name != "lion":
            update_norm.copy_(_update_norm(name, gradient, states, numbers))
        norm = update_norm.sqrt()
        scale = torch.where(norm > limit, limit / norm, 1.0)
        _step_32bit(name, gradient, parameter, states, numbers, skip_zeros, scale)
        if name == "lion":  # it limits the next update
            update_norm.copy_(_update_norm(name, gradient, states, numbers))
    else:
        _step_32bit(name, gradient, parameter, states, numbers, skip_zeros, None)
    for state, updated in zip(kept, on_device, strict=True):
        if updated is not state:
            state.copy_(updated)


def update_8bit_blockwise(
    name: str,
    gradient: Tensor,
    parameter: Tensor,
    state1: Tensor,
    state2: Tensor | None,
    beta1: float,
    beta2: float,
    beta3: float,
    alpha: float,
    eps: float,
    step: int,
    lr: float,
    map1: Tensor,
    map2: Tensor | None,
    absmax1: Tensor,
    absmax2: Tensor | None,
    weight_decay: float,
    gradient_scale: float,
    skip_zeros: bool = False,
) -> None:
    """Update `parameter`, the codes of its state, and their scales in place.

    Optimizers with two states reset them, and leave the parameter, where the gradient is not finite. Of the
    others, with `skip_zeros`, nothing changes where it is zero.
    """
    _check_name(name, NAMES_8BIT)
    if gradient.dtype not in FLOATS:
        supported = "Supported dtypes: torch.float32, torch.float16, torch.bfloat16"
        raise ValueError(f"Unsupported gradient dtype: {gradient.dtype}. {supported}")
    if name == "ademamix":
        _check_moments(state1, gradient)
    numbers = Step.of(
        step,
        beta1=beta1,
        beta2=beta2,
        beta3=beta3,
        alpha=alpha,
        eps=eps,
        weight_decay=weight_decay,
        lr=lr,
        gradient_scale=gradient_scale,
    )
    if name == "ademamix":
        rows = absmax1.view(2, -1)
        coded = [_Coded(state1[0], map1, rows[0], True), _Coded(state1[1], map1, rows[1], True)]
    else:
        coded = [_Coded(state1, map1, absmax1, True)]
    if state2 is not None and map2 is not None and absmax2 is not None:
        coded.append(_Coded(state2, map2, absmax2, False))
    states = [state.values(gradient.device) for state in coded]
    _step_8bit(name, gradient, parameter, states, numbers, skip_zeros)
    for state, values in zip(coded, states, strict=True):
        state.store(values)


def _check_moments(state: Tensor, gradient: Tensor) -> None:
    # The library's AdEMAMix32bit makes room for one of them, and its CUDA kernel goes past the end.
    if state.numel() != 2 * gradient.numel() or state.shape[0] != 2:
        raise ValueError(
            "ademamix keeps two moments in state1: expected the shape "
            f"{(2, *gradient.shape)}, got {tuple(state.shape)}. AdEMAMix and AdEMAMix8bit make such a state."
        )


def _check_name(name: str, known: list[str]) -> None:
    if name not in known:
        raise ValueError(f"Unsupported optimizer name: {name}. Supported optimizers: {known}")


def _rest(value: float | np.float32) -> float:
    """Give 1 - value in float32."""
    return float(np.float32(1.0) - np.float32(value))


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float32 to the values of another dtype."""
    return values.to(dtype).float()


def _step_32bit(
    name: str,
    gradient: Tensor,
    parameter: Tensor,
    states: list[Tensor],
    numbers: Step,
    skip_zeros: bool,
    scale: Tensor | None,
) -> None:
    dtype = parameter.dtype
    before = parameter.float()
    slope = _rounded(gradient.float() * numbers.gradient_scale, gradient.dtype)
    if numbers.weight_decay > 0.0 and name in COUPLED_DECAY:
        slope = _rounded(slope.add(before, alpha=numbers.weight_decay), gradient.dtype)
    skipped = slope == 0.0 if skip_zeros and name != "ademamix" else None
    old_states = [state.clone() for state in states] if skipped is not None else []
    start = (
        _rounded(before * numbers.shrink, dtype) if numbers.weight_decay > 0.0 and name == "lion" else before
    )
    change = _change(name, slope, slope, states, numbers)
    if scale is not None and name not in UNLIMITED:
        change.mul_(scale)
    after = start + change
    if numbers.weight_decay > 0.0 and name not in ONE_STATE:
        after = _rounded(after, dtype) * numbers.shrink
    if skipped is not None:
        after = torch.where(skipped, before, after)
        for state, old in zip(states, old_states, strict=True):
            state.copy_(torch.where(skipped, old, state))
    parameter.copy_(after)


def _step_8bit(
    name: str, gradient: Tensor, parameter: Tensor, states: list[Tensor], numbers: Step, skip_zeros: bool
) -> None:
    """Like :func:`_step_32bit`, over blocks: the states are [blocks, 256]."""
    dtype = parameter.dtype
    before = split_blocks(parameter.reshape(-1).float(), BLOCK_SIZE)
    plain = split_blocks(gradient.reshape(-1).float(), BLOCK_SIZE)
    slope, start = plain * numbers.gradient_scale, before
    if numbers.weight_decay > 0.0 and name in COUPLED_DECAY:
        slope.add_(before, alpha=numbers.weight_decay)
    if numbers.weight_decay > 0.0 and name == "lion":
        start = _rounded(before * numbers.shrink, dtype)
    old_states = [state.clone() for state in states] if skip_zeros and name in ONE_STATE else []
    change = _change(name, slope, plain, states, numbers)
    if name == "lion":
        change = _rounded(change, dtype)
    after = start + change
    if name not in ONE_STATE:
        if numbers.weight_decay > 0.0:
            after = _rounded(after, dtype) * numbers.shrink
        finite = plain.isfinite()
        after = torch.where(finite, after, before)
        for state in states:
            state.copy_(torch.where(finite, state, 0.0))
    elif skip_zeros:
        skipped = plain == 0.0
        after = torch.where(skipped, before, after)
        for state, old in zip(states, old_states, strict=True):
            state.copy_(torch.where(skipped, old, state))
    parameter.copy_(after.view(-1)[: parameter.numel()].view(parameter.shape))


def _change(name: str, slope: Tensor, plain: Tensor, states: list[Tensor], numbers: Step) -> Tensor:
    """Advance the states in place; give what the parameter changes by, without decay.

    `plain` is the gradient that RMSprop and Adagrad divide.
    """
    first, last = states[0], states[-1]
    if name == "lion":
        change = (first * numbers.beta1).add_(slope, alpha=_rest(numbers.beta1)).sign_().mul_(-numbers.lr)
        first.mul_(numbers.beta2).add_(slope, alpha=_rest(numbers.beta2))
        return change
    if name in ("momentum", "lars"):
        if numbers.number == 1:
            first.copy_(slope)
        else:
            first.mul_(numbers.beta1).add_(slope)
        return first * -numbers.lr
    if name in ("rmsprop", "adagrad"):
        if name == "rmsprop":
            first.mul_(numbers.beta1).addcmul_(slope, slope, value=_rest(numbers.beta1))
        else:
            first.addcmul_(slope, slope)
        return (plain / first.sqrt().add_(numbers.eps)).mul_(-numbers.lr)
    first.mul_(numbers.beta1).add_(slope, alpha=_rest(numbers.beta1))
    last.mul_(numbers.beta2).addcmul_(slope, slope, value=_rest(numbers.beta2))
    if name == "ademamix":
        slow = states[1].mul_(numbers.beta3).add_(slope, alpha=_rest(numbers.beta3))
        mixed = (first / numbers.correction1).add_(slow, alpha=numbers.alpha)
        return mixed.div_((last.sqrt() / numbers.correction2).add_(numbers.eps)).mul_(-numbers.lr)
    size = -numbers.lr * numbers.correction2 / numbers.correction1
    return (first / last.sqrt().add_(numbers.eps * numbers.correction2)).mul_(size)


def _update_norm(name: str, gradient: Tensor, states: list[Tensor], numbers: Step) -> Tensor:
    """Give the sum of squares of the update from these states: of Lion and AdEMAMix a plain sum."""
    slope = _rounded(gradient.float() * numbers.gradient_scale, gradient.dtype)
    first, last = states[0], states[-1]
    if name == "ademamix":
        return first.sum()
    if name == "lion":
        return (first * numbers.beta2).add_(slope, alpha=_rest(numbers.beta2)).sum()
    if name in ("momentum", "lars"):
        update = slope if numbers.number == 1 else first * numbers.beta1 + slope
    elif name in ("rmsprop", "adagrad"):
        decayed, weight = (first * numbers.beta1, _rest(numbers.beta1)) if name == "rmsprop" else (first, 1.0)
        update = slope / decayed.addcmul(slope, slope, value=weight).sqrt_().add_(numbers.eps)
    else:
        mean = (first * numbers.beta1).add_(slope, alpha=_rest(numbers.beta1)).div_(numbers.correction1)
        square = (last * numbers.beta2).addcmul_(slope, slope, value=_rest(numbers.beta2))
        update = mean / square.sqrt_().div_(numbers.correction2).add_(numbers.eps)
    return update.square().sum()


@dataclass(frozen=True)
class _Coded:
    """State of 8 bits: indices into a map, and the scale of each block."""

    codes: Tensor
    map: Tensor
    absmax: Tensor
    signed: bool

    def values(self, device: torch.device) -> Tensor:
        """Give the values as [blocks, 256], the last block filled up with zeros."""
        values = map_values(self.codes.to(device).reshape(-1), self.map)
        return split_blocks(values, BLOCK_SIZE) * self.absmax.view(-1, 1)

    def store(self, values: Tensor) -> None:
        """Quantise new values. A signed value that is not zero keeps its sign, even next to zero."""
        absmax = block_absmax(values)
        codes = map_codes(values / absmax.view(-1, 1), self.map)
        if self.signed:
            lost = map_values(codes, self.map).signbit() != values.signbit()
            codes = torch.where(lost, codes + torch.where(values > 0.0, 1, 255), codes).to(torch.uint8)
        self.absmax.copy_(absmax)
        self.codes.copy_(codes.view(-1)[: self.codes.numel()].view(self.codes.shape))

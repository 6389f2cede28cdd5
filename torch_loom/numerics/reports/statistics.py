"""How far a tensor in a format is from the exact tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_loom.errors import OperandError
from torch_loom.numerics._checks import check_tensor
from torch_loom.numerics.formats import BLOCK_ELEMENTS, DataFormat, ExponentFamily
from torch_loom.numerics.quantization import quantize
from torch_loom.numerics.tensor_cores.block_formats import BlockScaled, Plain, scale_values, to_blocks

Format = DataFormat | BlockScaled | Plain


def pcc(values: Tensor, exact: Tensor) -> float:
    """Return Pearson's correlation of two tensors of one shape: 1.0 where one is the other up to scale and
    offset.

    Constant tensors correlate fully if they are equal and not at all otherwise; so do tensors with NaNs.

    Raises:
        OperandError: an operand is no tensor, or their shapes differ.
    """
    values, exact = check_tensor("pcc", values, "values"), check_tensor("pcc", exact, "exact")
    if values.shape != exact.shape:
        raise OperandError(f"pcc: shapes {list(values.shape)} and {list(exact.shape)}; allowed: one shape")
    a, b = values.detach().double().flatten(), exact.detach().double().flatten()
    if a.numel() == 0 or torch.equal(a, b):
        return 1.0
    if not bool(a.isfinite().all() and b.isfinite().all()):
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    norms = float(a.norm() * b.norm())
    return max(-1.0, min(1.0, float(a @ b) / norms)) if norms > 0.0 else 0.0


@dataclass(frozen=True)
class Errors:
    """What a format does to a tensor."""

    pcc: float
    largest: float
    """Largest absolute error."""
    relative: float
    """Norm of the error over the norm of the exact values."""
    saturated: float
    """Share of the exact values that are larger than their format, or their block's exponent, can hold."""
    flushed: float
    """Share of the exact values that are not zero and become zero in the format."""

    @staticmethod
    def of(values: Tensor, exact: Tensor, fmt: Format) -> Errors:
        """Compare `values`, computed in `fmt`, with `exact`."""
        a, b = values.detach().double(), exact.detach().double()
        difference = a - b
        norm = float(b.norm())
        error = float(difference.norm())
        relative = error / norm if norm > 0.0 else (0.0 if error == 0.0 else math.inf)
        largest = float(difference.abs().max()) if difference.numel() else 0.0
        saturated, flushed = lost(exact, fmt)
        return Errors(pcc(values, exact), largest, relative, saturated, flushed)


def lost(exact: Tensor, fmt: Format) -> tuple[float, float]:
    """Return the shares of `exact` that saturate in `fmt` and that become zero in it."""
    exact = exact.detach().float()
    if exact.numel() == 0:
        return 0.0, 0.0
    if isinstance(fmt, BlockScaled):
        rows = exact.reshape(-1, exact.shape[-1] if exact.dim() else 1)
        blocks = to_blocks("compare", torch.nn.functional.pad(rows, (0, -rows.shape[1] % fmt.block)), fmt)
        scales = scale_values(blocks.scales, fmt.scale) * blocks.tensor_scale
        limits = (scales * fmt.limit).repeat_interleave(fmt.block, -1)[:, : rows.shape[1]]
        is_lost = (blocks.elements[:, : rows.shape[1]] == 0) & (rows != 0)
        return float((rows.abs() > limits).double().mean()), float(is_lost.double().mean())
    if isinstance(fmt, Plain):
        kept = fmt.values(exact)
        saturated = kept.isinf() & exact.isfinite()
        return float(saturated.double().mean()), float(((kept == 0) & (exact != 0)).double().mean())
    held = quantize(exact, fmt)
    flushed = ((held == 0) & (exact != 0)).double().mean()
    if not fmt.is_block:
        low, high = fmt.range
        return float(((exact > high) | (exact < low)).double().mean()), float(flushed)
    step = _block_steps(exact, fmt)
    saturated = ((exact.double().abs() - held.double().abs()) > step / 2).double().mean()
    return float(saturated), float(flushed)


def _block_steps(exact: Tensor, fmt: DataFormat) -> Tensor:
    """The distance of two values of each element's block."""
    columns = exact.shape[-1] if exact.dim() else 1
    rows = exact.reshape(-1, columns).double().abs()
    padded = torch.nn.functional.pad(rows, (0, -columns % BLOCK_ELEMENTS))
    largest = padded.view(rows.shape[0], -1, BLOCK_ELEMENTS).amax(-1, keepdim=True)
    exponent = torch.frexp(largest).exponent - 1
    if fmt.exponent_family is ExponentFamily.A:
        exponent = exponent.clamp(-15, 16)
    step = torch.ldexp(torch.ones_like(largest), exponent - (fmt.significand_bits - 1))
    return step.expand(-1, -1, BLOCK_ELEMENTS).reshape(rows.shape[0], -1)[:, :columns].reshape(exact.shape)

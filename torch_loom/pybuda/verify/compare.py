"""The rule by which a value passes: close, or correlated."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_loom.pybuda.verify.config import DEFAULT_PCC, VerifyConfig


@dataclass(frozen=True)
class Comparison:
    """How a value compares with its reference; ``reason`` is empty where it passes."""

    passed: bool
    pcc: float
    max_difference: float
    reason: str = ""


def correlation(reference: torch.Tensor, value: torch.Tensor) -> float:
    """Return Pearson's coefficient of two tensors of one shape, -1 to 1.

    Places where both are infinite or NaN in the same way are left out. Two constants have 1 where they are
    equal, else 0: there is nothing to correlate.
    """
    a, b = reference.detach().double().flatten().cpu(), value.detach().double().flatten().cpu()
    finite = a.isfinite() & b.isfinite()
    if not finite.all():
        if not _equal_elsewhere(a, b, finite):
            return 0.0
        a, b = a[finite], b[finite]
    if not a.numel() or torch.equal(a, b):
        return 1.0
    a, b = a - a.mean(), b - b.mean()
    norms = float(a.norm() * b.norm())
    return float(a @ b) / norms if norms else 0.0


def compare_tensors(
    reference: torch.Tensor, value: torch.Tensor, verify_cfg: VerifyConfig | None = None
) -> Comparison:
    """Compare a value with its reference by the rule of :class:`VerifyConfig`."""
    config = verify_cfg or VerifyConfig()
    a, b = reference.detach().cpu(), value.detach().cpu()
    if a.shape != b.shape:
        return Comparison(False, 0.0, float("inf"), f"shape {tuple(b.shape)}, expected {tuple(a.shape)}")
    if config.golden_compare_callback is not None:
        passed = bool(config.golden_compare_callback(a, b))
        return Comparison(passed, correlation(a, b), _difference(a, b), "" if passed else "the callback's no")
    x, y = a.double(), b.double()
    largest = _largest(x)
    atol = config.tolerance("atol", a.dtype)
    atol = config.relative_atol * largest if atol is None else atol
    rtol = config.tolerance("rtol", a.dtype) or 0.0
    pcc, wanted = correlation(a, b), DEFAULT_PCC if config.pcc is None else config.pcc
    # Of all zeros nothing can be within a share, nor correlated.
    lost = bool(a.any()) and not bool(b.any())
    passed = not lost and (pcc >= wanted or torch.allclose(x, y, rtol, atol, equal_nan=True))
    difference = _difference(a, b)
    if passed:
        return Comparison(True, pcc, difference)
    reason = f"correlation {pcc:.9g} below {wanted}, largest difference {difference:.4g} above {atol:.4g}"
    return Comparison(False, pcc, difference, "all zeros" if lost else reason)


def _equal_elsewhere(a: torch.Tensor, b: torch.Tensor, finite: torch.Tensor) -> bool:
    left, right = a[~finite], b[~finite]
    return bool(torch.all((left == right) | (left.isnan() & right.isnan())))


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return _largest(a.double() - b.double())


def _largest(values: torch.Tensor) -> float:
    """The largest magnitude that is finite."""
    finite = values.isfinite()
    known = values if finite.all() else values[finite]  # picking elements takes longer than all else
    return float(known.abs().max()) if known.numel() else 0.0

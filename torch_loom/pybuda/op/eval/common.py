"""Whether values are what they should be, by the rule of verifications."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from torch_loom.errors import VerificationError
from torch_loom.pybuda.tensor import to_torch
from torch_loom.pybuda.verify.compare import compare_tensors, correlation
from torch_loom.pybuda.verify.config import Tolerance, VerifyConfig


def calculate_pcc(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return Pearson's coefficient of two tensors of one shape, -1 to 1."""
    return correlation(a, b)


def compare_tensor_to_golden(
    name: str,
    golden: Any,
    calculated: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    pcc: float | None = None,
    warning_only: bool = False,
    relative_atol: float | None = None,
    verify_cfg: VerifyConfig | None = None,
) -> bool:
    """Return whether a value is close to the reference, or correlated.

    Args:
        warning_only: warn where it is not.

    Raises:
        VerificationError: it is not, and no warning was asked for.
    """
    base = verify_cfg or VerifyConfig()
    config = VerifyConfig(
        rtol=base.rtol if rtol is None else rtol,
        atol=base.atol if atol is None else atol,
        pcc=base.pcc if pcc is None else pcc,
        relative_atol=base.relative_atol if relative_atol is None else relative_atol,
        golden_compare_callback=base.golden_compare_callback,
    )
    reference, value = to_torch(golden), to_torch(calculated)
    # A chip's tensor has four dimensions, of which the first may be 1.
    while value.dim() > reference.dim() and value.shape[0] == 1:
        value = value[0]
    compared = compare_tensors(reference, value, config)
    if not compared.passed:
        text = f"{name} differs: {compared.reason}"
        if not warning_only:
            raise VerificationError(text)
        warnings.warn(text, stacklevel=2)
    return compared.passed

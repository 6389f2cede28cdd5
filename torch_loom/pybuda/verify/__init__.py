"""Comparison of what devices compute with PyTorch on the host, at each stage of the compilation."""

from torch_loom.pybuda.enums import TestKind
from torch_loom.pybuda.verify.compare import Comparison, compare_tensors, correlation
from torch_loom.pybuda.verify.config import VerifyConfig
from torch_loom.pybuda.verify.stages import Checked, verify_device

__all__ = [
    "Checked",
    "Comparison",
    "TestKind",
    "VerifyConfig",
    "compare_tensors",
    "correlation",
    "verify_device",
]

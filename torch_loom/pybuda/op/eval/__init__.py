"""Comparison of tensors, under the names of PyBuda's own tests."""

from torch_loom.pybuda.op.eval.common import calculate_pcc, compare_tensor_to_golden

__all__ = ["calculate_pcc", "compare_tensor_to_golden"]

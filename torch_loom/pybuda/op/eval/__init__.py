"""Comparison of tensors and sizes of convolutions, under the names of PyBuda's own tests."""

from torch_loom.pybuda.op.eval.common import calculate_pcc, compare_tensor_to_golden
from torch_loom.pybuda.op.eval.sparse_utils import does_prestriding_improve_perf

__all__ = ["calculate_pcc", "compare_tensor_to_golden", "does_prestriding_improve_perf"]

"""Prints whether chips have the toy's kernel that do not name it and that do, and what the toy costs."""

from dataclasses import replace

from torch_loom.chips import load
from torch_loom.chips.chip import figures
from torch_loom.chips.cost import Op, Tensor
from torch_loom.chips.cost.lower import lower

silent = load("h200")
takes = figures()["fused_kernels"].metadata["check"]
having = replace(silent, fused_kernels=takes(["toy"]))
tensor = Tensor.dense("float32", 4)
(kernel,) = lower(Op("_test_optional_intlist", (tensor,), (tensor,)))
print("toy" in silent.fused_kernels, "toy" in having.fused_kernels, kernel.family)

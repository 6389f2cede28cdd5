"""How long ops take on a chip: closed formulas over rooflines, coefficients from its description."""

from torch_loom.chips.cost.model import CostModel, Estimate
from torch_loom.chips.cost.records import Kernel, Op, Tensor

__all__ = ["CostModel", "Estimate", "Kernel", "Op", "Tensor"]

"""The matrix instructions of NVIDIA's GPUs, to the bit (docs/numerics.md)."""

from torch_loom.numerics.tensor_cores.block_formats import BlockScaled
from torch_loom.numerics.tensor_cores.chips import chip_rule
from torch_loom.numerics.tensor_cores.emulation import Multiplied, TensorCores, tensor_core
from torch_loom.numerics.tensor_cores.rules import Rule, instruction_rule
from torch_loom.numerics.tensor_cores.setting import multiply_by_setting

__all__ = [
    "BlockScaled",
    "Multiplied",
    "Rule",
    "TensorCores",
    "chip_rule",
    "instruction_rule",
    "multiply_by_setting",
    "tensor_core",
]

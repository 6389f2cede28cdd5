"""Names of PyBuda's balancer."""

from torch_loom.pybuda.compiler_config import OpOverride
from torch_loom.pybuda.enums import PolicyType

__all__ = ["OpOverride", "PolicyType"]

"""The names of PyBuda's C++ module: enumerations that its users import from here."""

from torch_loom.pybuda._C import backend_api, balancer, graph, placer, pyplacer
from torch_loom.pybuda.enums import NodeEpochType, RuntimeTensorTransformType
from torch_loom.pybuda.formats import DataFormat, MathFidelity

k_dim = -1

__all__ = [
    *DataFormat.__members__,
    "DataFormat",
    "MathFidelity",
    "NodeEpochType",
    "RuntimeTensorTransformType",
    "backend_api",
    "balancer",
    "graph",
    "k_dim",
    "placer",
    "pyplacer",
]

# Formats are names of the module, too: pybuda._C.Float16_b.
globals().update(DataFormat.__members__)

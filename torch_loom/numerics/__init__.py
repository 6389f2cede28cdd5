"""Numbers as Tensix chips have them: data formats and math fidelity, to the bit (docs/numerics.md)."""

from torch_loom.numerics.emulation import Emulated, Emulation, Precision, emulate
from torch_loom.numerics.formats import DataFormat, ExponentFamily, MathFidelity
from torch_loom.numerics.products import conv2d, default_accumulate, matmul
from torch_loom.numerics.quantization import (
    Nonfinite,
    nonfinite,
    nonfinite_total,
    num_tiles,
    pack,
    quantize,
    quantize_,
    unpack,
)
from torch_loom.numerics.reports import Comparison, SearchResult, compare, pcc, search
from torch_loom.numerics.tensor_cores import BlockScaled, tensor_core

__all__ = [
    "BlockScaled",
    "Comparison",
    "DataFormat",
    "Emulated",
    "Emulation",
    "ExponentFamily",
    "MathFidelity",
    "Nonfinite",
    "Precision",
    "SearchResult",
    "compare",
    "conv2d",
    "default_accumulate",
    "emulate",
    "matmul",
    "nonfinite",
    "nonfinite_total",
    "num_tiles",
    "pack",
    "pcc",
    "quantize",
    "quantize_",
    "search",
    "tensor_core",
    "unpack",
]

"""The functions that compute ONNX operators, a file a family; importing this fills the table."""

from torch_loom.compiler.onnx.ops import (
    attention,
    elementwise,
    indexing,
    layout,
    matmul,
    normalization,
    pooling,
    reductions,
)

__all__ = [
    "attention",
    "elementwise",
    "indexing",
    "layout",
    "matmul",
    "normalization",
    "pooling",
    "reductions",
]

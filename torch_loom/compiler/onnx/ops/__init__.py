"""The functions that compute ONNX operators, a file a family; importing this fills the table."""

from torch_loom.compiler.onnx.ops import (
    attention,
    elementwise,
    indexing,
    layout,
    losses,
    matmul,
    normalization,
    pooling,
    quantization,
    recurrent,
    reductions,
    resizing,
    sequences,
)

__all__ = [
    "attention",
    "elementwise",
    "indexing",
    "layout",
    "losses",
    "matmul",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reductions",
    "resizing",
    "sequences",
]

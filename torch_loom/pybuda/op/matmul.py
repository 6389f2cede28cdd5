"""Matrix products."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.pybuda.op.apply import apply
from torch_loom.pybuda.tensor import Tensor

Torch = Any  # a torch.Tensor; several of its methods have no types


def _product(a: Torch, b: Torch) -> Torch:
    if a.dtype is torch.int8 and b.dtype is torch.int8:
        # Sums of products of 8-bit integers need 32 bits.
        return torch.matmul(a.to(torch.int32), b.to(torch.int32))
    return torch.matmul(a, b.to(a.dtype))


def Matmul(name: str, operandA: Any, operandB: Any, bias: Any | None = None) -> Tensor:
    """Matrix product of the last two dimensions, plus bias: ``y = ab + bias``. Int8 products are Int32."""
    operands = (operandA, operandB) if bias is None else (operandA, operandB, bias)

    def run(a: Torch, b: Torch, *rest: Torch) -> Torch:
        product = _product(a, b)
        return product + rest[0].to(product.dtype) if rest else product

    made: Tensor = apply("matmul", name, operands, run)
    return made


def SparseMatmul(name: str, sparseA: Any, denseB: Any) -> Tensor:
    """Product of a sparse matrix (or stack of them) and a dense matrix; the result is dense."""

    def run(a: Torch, b: Torch) -> Torch:
        if a.layout is torch.strided:
            return _product(a, b)
        if a.dim() == 2 and b.dim() == 2:
            return torch.sparse.mm(a, b.to(a.dtype))
        return _product(a.to_dense(), b)

    made: Tensor = apply("sparse_matmul", name, (sparseA, denseB), run, format_of_operand=1)
    return made

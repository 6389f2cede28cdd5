"""bitsandbytes on the devices: kernels for its ops, found through its own extension point.

The library ships kernels as compiled CUDA code, which nothing here can execute. After its own backends it
calls the entry points of the group ``bitsandbytes.backends``; :func:`register` is one. What the kernels
compute is what the library's CUDA kernels compute, from PyTorch's ops: block-wise quantisation (``blocks``),
LLM.int8() (``int8``), products with 4-bit weights (``products``), optimizer steps (``optimizers``), and the
memory of paged optimizers (``paged``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from torch_loom import config
from torch_loom.compat.bitsandbytes import blocks, int8, optimizers, paged, products

__all__ = ["KERNELS", "register"]

KERNELS: dict[str, Callable[..., Any]] = {
    "quantize_blockwise": blocks.quantize_blockwise,
    "dequantize_blockwise": blocks.dequantize_blockwise,
    "dequantize_blockwise.out": blocks.dequantize_blockwise_out,
    "quantize_4bit": blocks.quantize_4bit,
    "dequantize_4bit": blocks.dequantize_4bit,
    "dequantize_4bit.out": blocks.dequantize_4bit_out,
    "gemm_4bit": products.gemm_4bit,
    "gemv_4bit": products.gemv_4bit,
    "gemv_4bit.out": products.gemv_4bit_out,
    "int8_linear_matmul": int8.linear_matmul,
    "int8_linear_matmul.out": int8.linear_matmul_out,
    "int8_mm_dequant": int8.mm_dequant,
    "int8_vectorwise_quant": int8.vectorwise_quant,
    "int8_double_quant": int8.double_quant,
    "optimizer_update_32bit": optimizers.update_32bit,
    "optimizer_update_8bit_blockwise": optimizers.update_8bit_blockwise,
}
"""Kernels by the names of the library's ops. Its other ops are made of these, by its own code."""


def register() -> None:
    """Register the kernels for the device's name. The library calls this when it is imported."""
    from bitsandbytes import cextension

    device = config.device_name()
    with warnings.catch_warnings():
        # PyTorch warns that a kernel is replaced. Under the name cuda that is the purpose: the library's own
        # kernels call its compiled code.
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for op, kernel in KERNELS.items():
            torch.library.register_kernel(f"bitsandbytes::{op}", device, kernel)
    paged.install(cextension.lib)

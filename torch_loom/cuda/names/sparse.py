"""The sparse tensor types of before PyTorch 0.4: ``torch.loom.sparse.FloatTensor(indices, values, size)``."""

import torch

from torch_loom.cuda.names.legacy_types import tensor_type

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]

BFloat16Tensor = tensor_type("BFloat16Tensor", torch.bfloat16, torch.sparse_coo)
ByteTensor = tensor_type("ByteTensor", torch.uint8, torch.sparse_coo)
CharTensor = tensor_type("CharTensor", torch.int8, torch.sparse_coo)
DoubleTensor = tensor_type("DoubleTensor", torch.float64, torch.sparse_coo)
FloatTensor = tensor_type("FloatTensor", torch.float32, torch.sparse_coo)
HalfTensor = tensor_type("HalfTensor", torch.float16, torch.sparse_coo)
IntTensor = tensor_type("IntTensor", torch.int32, torch.sparse_coo)
LongTensor = tensor_type("LongTensor", torch.int64, torch.sparse_coo)
ShortTensor = tensor_type("ShortTensor", torch.int16, torch.sparse_coo)

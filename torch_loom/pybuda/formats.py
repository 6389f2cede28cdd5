"""Which dtype holds a data format, and the reverse."""

from __future__ import annotations

import warnings

import torch

from torch_loom.errors import PyBudaError
from torch_loom.numerics import DataFormat, MathFidelity

__all__ = ["DataFormat", "MathFidelity", "format_of", "torch_dtype"]


_OF_DTYPE = {
    torch.float16: DataFormat.Float16,
    torch.bfloat16: DataFormat.Float16_b,
    torch.float32: DataFormat.Float32,
    torch.float64: DataFormat.Float32,
    torch.int8: DataFormat.Int8,
    torch.uint8: DataFormat.RawUInt8,
    torch.bool: DataFormat.Bfp2_b,
    torch.int32: DataFormat.Int32,
    torch.int64: DataFormat.Int8,
}
_DTYPES = {
    DataFormat.Float32: torch.float32,
    DataFormat.Float16: torch.float16,
    DataFormat.Bfp8: torch.float16,
    DataFormat.Bfp4: torch.float16,
    DataFormat.Bfp2: torch.float16,
    DataFormat.Lf8: torch.float16,
    DataFormat.Float16_b: torch.bfloat16,
    DataFormat.Bfp8_b: torch.bfloat16,
    DataFormat.Bfp4_b: torch.bfloat16,
    DataFormat.Bfp2_b: torch.bfloat16,
    DataFormat.Int8: torch.int8,
    DataFormat.Int32: torch.int32,
    DataFormat.UInt16: torch.int32,
    DataFormat.RawUInt8: torch.uint8,
    DataFormat.RawUInt16: torch.int32,
    DataFormat.RawUInt32: torch.int32,
}


def format_of(dtype: torch.dtype, fp32_fallback: DataFormat = DataFormat.Float32) -> DataFormat:
    """Return the data format of a dtype; float32 has that of the fallback.

    Raises:
        PyBudaError: a dtype that has none (complex numbers).
    """
    found = _OF_DTYPE.get(dtype)
    if found is None:
        known = ", ".join(str(known) for known in _OF_DTYPE)
        raise PyBudaError(f"{dtype} has no data format; convert the tensor to one of {known}")
    if dtype is torch.int64:
        warnings.warn("int64 has no data format of its own and is called Int8", stacklevel=3)
    return fp32_fallback if found is DataFormat.Float32 else found


def torch_dtype(data_format: DataFormat) -> torch.dtype:
    """Return the dtype that holds values of a data format.

    Raises:
        PyBudaError: the format is Invalid.
    """
    if data_format not in _DTYPES:
        raise PyBudaError(f"{data_format} holds no values: choose another data format")
    return _DTYPES[data_format]

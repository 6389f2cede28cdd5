"""Data formats and math fidelity, under PyBuda's names and values, and which dtype holds each."""

from __future__ import annotations

import enum
import warnings

import torch

from torch_loom.errors import PyBudaError

__all__ = ["DataFormat", "MathFidelity", "format_of", "torch_dtype"]


class DataFormat(enum.Enum):
    """How an element of a tensor is stored."""

    Float32 = 0
    Float16 = 1
    Bfp8 = 2
    Bfp4 = 3
    Float16_b = 5
    Bfp8_b = 6
    Bfp4_b = 7
    Int32 = 8
    Lf8 = 10
    Bfp2 = 11
    UInt16 = 12
    Int8 = 14
    Bfp2_b = 15
    RawUInt8 = 240
    RawUInt16 = 241
    RawUInt32 = 242
    Invalid = 255

    @staticmethod
    def from_json(text: str) -> DataFormat:
        """Return the member of this name.

        Raises:
            PyBudaError: there is none.
        """
        try:
            return DataFormat[text]
        except KeyError:
            known = ", ".join(DataFormat.__members__)
            raise PyBudaError(f"DataFormat.from_json: {text!r} is no data format: {known}") from None

    def to_json(self) -> str:
        """Return the member's name."""
        return self.name


class MathFidelity(enum.Enum):
    """How many phases a product takes, and so how many bits of its operands count."""

    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 255

    @staticmethod
    def from_json(text: str) -> MathFidelity:
        """Return the member of this name.

        Raises:
            PyBudaError: there is none.
        """
        try:
            return MathFidelity[text]
        except KeyError:
            known = ", ".join(MathFidelity.__members__)
            raise PyBudaError(f"MathFidelity.from_json: {text!r} is no fidelity: {known}") from None

    def to_json(self) -> str:
        """Return the member's name."""
        return self.name


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

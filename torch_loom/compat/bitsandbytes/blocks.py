"""Block-wise quantisation: each block of values is scaled by its largest magnitude to [-1, 1] and stored as
codes.

A code of 8 bits is an index into a sorted map of 256 values, which the caller gives. A code of 4 bits is NF4
or FP4; two are in one byte, the first in its upper half. A tie goes where the search of the library's CUDA
kernels ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "block_absmax",
    "check_out",
    "dequantize_4bit",
    "dequantize_4bit_out",
    "dequantize_blockwise",
    "dequantize_blockwise_out",
    "map_codes",
    "map_values",
    "quantize_4bit",
    "quantize_blockwise",
    "split_blocks",
    "unpack_4bit",
]

BLOCK_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)

NF4_VALUES = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
NF4_BOUNDS = (
    -0.8480964004993439,
    -0.6106329262256622,
    -0.4599952697753906,
    -0.33967943489551544,
    -0.23460740596055984,
    -0.13791173323988914,
    -0.045525018125772476,
    0.03979014977812767,
    0.1202552504837513,
    0.2035212516784668,
    0.2920137718319893,
    0.3893125355243683,
    0.5016634166240692,
    0.6427869200706482,
    0.8614784181118011,
)
FP4_MAGNITUDES = (0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
FP4_VALUES = (*FP4_MAGNITUDES, *(-magnitude for magnitude in FP4_MAGNITUDES))
FP4_BOUNDS = (0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333)
"""Between magnitudes in ascending order."""


def split_blocks(flat: Tensor, block_size: int) -> Tensor:
    """Give values [n] as [blocks, block_size], the last block filled up with zeros."""
    missing = -flat.numel() % block_size
    if missing:
        flat = torch.nn.functional.pad(flat, (0, missing))
    return flat.view(-1, block_size)


def block_absmax(blocks: Tensor) -> Tensor:
    """Give the largest magnitude of each of the blocks [blocks, block_size]. It is never NaN."""
    return blocks.abs().nan_to_num_(nan=0.0, posinf=math.inf).amax(1)


def map_codes(scaled: Tensor, code: Tensor) -> Tensor:
    """Give the indices into the sorted map `code` [256] that are nearest to `scaled`, as uint8.

    A value in the middle between two entries gets the even index, NaN gets 0.
    """
    bounds = (code[1:] + code[:-1]) * 0.5
    # bucketize() leaves ties below a bound. Above entries with odd indices they belong above it.
    bounds[1::2] = bounds[1::2].nextafter(bounds.new_full((), -math.inf))
    return _bucketize(scaled, bounds).to(torch.uint8)


def map_values(codes: Tensor, code: Tensor) -> Tensor:
    """Look up the indices `codes`, of any shape, in the map `code`."""
    return code.index_select(0, codes.reshape(-1).int()).view(codes.shape)


def quantize_blockwise(values: Tensor, code: Tensor, blocksize: int) -> tuple[Tensor, Tensor]:
    """Quantise to 8 bits: give the codes, shaped as `values`, and the scales [blocks]."""
    if code.dtype != torch.float32:
        raise ValueError(f"code must be float32, got {code.dtype}")
    if blocksize not in BLOCK_SIZES:
        raise ValueError(f"invalid blocksize {blocksize}")
    _check_float(values.dtype, "Blockwise quantization")
    scaled, absmax = _scale(values, blocksize)
    return map_codes(scaled, code)[: values.numel()].view(values.shape), absmax


def dequantize_blockwise(
    codes: Tensor, absmax: Tensor, code: Tensor, blocksize: int, dtype: torch.dtype
) -> Tensor:
    """Undo :func:`quantize_blockwise`."""
    _check_float(dtype, "Blockwise dequantization")
    values = map_values(split_blocks(codes.reshape(-1), blocksize), code) * absmax.view(-1, 1)
    return values.view(-1)[: codes.numel()].view(codes.shape).to(dtype)


def dequantize_blockwise_out(
    codes: Tensor, absmax: Tensor, code: Tensor, blocksize: int, dtype: torch.dtype, out: Tensor
) -> None:
    """Write what :func:`dequantize_blockwise` returns to `out`."""
    check_out(out, codes.shape, dtype)
    out.copy_(dequantize_blockwise(codes, absmax, code, blocksize, dtype))


def quantize_4bit(
    values: Tensor, blocksize: int, quant_type: str, quant_storage: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Quantise to 4 bits: give the bytes as a column of `quant_storage`, and the scales [blocks]."""
    _check_float(values.dtype, "Blockwise 4bit quantization")
    scaled, absmax = _scale(values, blocksize)
    codes = (_fp4_codes(scaled) if quant_type == "fp4" else _nf4_codes(scaled)).to(torch.uint8).view(-1, 2)
    packed = (codes[:, 0] << 4) | codes[:, 1]
    size = (values.numel() + 1) // (quant_storage.itemsize * 2)
    return packed[: size * quant_storage.itemsize].view(quant_storage).unsqueeze(1), absmax


def dequantize_4bit(
    packed: Tensor, absmax: Tensor, blocksize: int, quant_type: str, shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """Undo :func:`quantize_4bit`; `shape` is that of the values."""
    _check_float(dtype, "Blockwise 4bit dequantization")
    values = _constants(FP4_VALUES if quant_type == "fp4" else NF4_VALUES, packed.device)
    return unpack_4bit(packed, values, absmax, blocksize, shape).to(dtype)


def dequantize_4bit_out(
    packed: Tensor,
    absmax: Tensor,
    blocksize: int,
    quant_type: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    out: Tensor,
) -> None:
    """Write what :func:`dequantize_4bit` returns to `out`."""
    check_out(out, shape, dtype)
    out.copy_(dequantize_4bit(packed, absmax, blocksize, quant_type, shape, dtype))


def unpack_4bit(
    packed: Tensor, values: Tensor, absmax: Tensor, block_size: int, shape: Sequence[int]
) -> Tensor:
    """Give what codes of 4 bits, which index the 16 `values`, stand for: in float32, shaped as `shape`."""
    size = math.prod(shape)
    # Two values for each byte: one lookup, and no intermediate codes.
    pairs = torch.stack((values.repeat_interleave(16), values.repeat(16)), 1)
    codes = packed.reshape(-1).view(torch.uint8)[: (size + 1) // 2]
    unscaled = split_blocks(pairs.index_select(0, codes.int()).view(-1)[:size], block_size)
    return (unscaled * absmax.view(-1, 1)).view(-1)[:size].view(*shape)


def check_out(out: Tensor, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Raise what the library raises of an `out` of another shape or dtype."""
    if out.shape != tuple(shape):
        raise ValueError(f"Expected out.shape == {shape}, got {out.shape}")
    if out.dtype != dtype:
        raise ValueError(f"Expected out.dtype == {dtype}, got {out.dtype}")


def _check_float(dtype: torch.dtype, what: str) -> None:
    if dtype not in FLOATS:
        raise ValueError(f"{what} only supports 16/32-bit floats, but got {dtype}")


def _scale(values: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Give the values divided by their blocks' magnitudes, flat and in whole blocks, and the magnitudes."""
    blocks = split_blocks(values.reshape(-1).float(), block_size)
    absmax = block_absmax(blocks)
    return (blocks * absmax.reciprocal().view(-1, 1)).view(-1), absmax


def _nf4_codes(scaled: Tensor) -> Tensor:
    return _bucketize(scaled, _constants(NF4_BOUNDS, scaled.device))


def _fp4_codes(scaled: Tensor) -> Tensor:
    rank = _bucketize(scaled.abs(), _constants(FP4_BOUNDS, scaled.device))
    # The code of a magnitude: its place in ascending order, but for two pairs that have changed places.
    return (rank ^ ((rank & 2) << 1)) + (scaled < 0) * 8


def _bucketize(scaled: Tensor, bounds: Tensor) -> Tensor:
    """Count the bounds below each value; none is below NaN."""
    finite = scaled.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    return torch.bucketize(finite, bounds, out_int32=True)


def _constants(values: Sequence[float], device: torch.device) -> Tensor:
    """Give float32 constants on the device, as arguments of a kernel: graphs capture no host copies."""
    constants = torch.zeros(len(values), device=device)
    torch._foreach_add_(constants.unbind(), values)
    return constants

"""The definition of docs/numerics.md over whole arrays of numpy integers, for millions of elements.

Written from the definition as reference.py is, which the tests compare it with: integer arithmetic alone, and
nothing of the package but the names of the formats. Values are float32's bits in int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.numerics.reference import BLOCK, INTEGERS, MAGNITUDE_BITS, NAN, SHORT_EXPONENT
from torch_loom.numerics import DataFormat

Bits = NDArray[np.int64]

INFINITY, LARGEST, SIGN, NORMAL = 0x7F800000, 0x7F7FFFFF, 1 << 31, 1 << 23
# float32: the value is significand · 2^(max(exponent field, 1) - STEP), the significand with its leading one.
STEP = 150


def rows(fmt: DataFormat, values: NDArray[Any]) -> NDArray[np.uint32]:
    """Float32 bits [R, C] in a format, C along the last dimension; one NaN stands for all."""
    bits = values.astype(np.int64) & 0xFFFFFFFF
    result = _blocks(fmt, bits) if fmt in MAGNITUDE_BITS else _elements(fmt, bits)
    return result.astype(np.uint32)


def counts(fmt: DataFormat, values: NDArray[Any]) -> tuple[int, int]:
    """What of rows the format cannot hold: values and blocks."""
    if fmt in (DataFormat.Float32, DataFormat.Float16_b):
        return 0, 0
    magnitude = values.astype(np.int64) & (SIGN - 1)
    nans, infinities = magnitude > INFINITY, int((magnitude == INFINITY).sum())
    if fmt not in MAGNITUDE_BITS:
        return infinities + int(nans.sum()), 0
    return infinities, int(_in_blocks(nans).any(-1).sum())


def _in_blocks(values: NDArray[Any]) -> NDArray[Any]:
    """[R, C] as [R, blocks, 16]: a row's last block is filled with zeros."""
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % BLOCK)))
    return padded.reshape(values.shape[0], padded.shape[1] // BLOCK, BLOCK)


def _parts(magnitude: Bits) -> tuple[Bits, Bits]:
    """Exponent field, at least 1, and significand of finite magnitudes."""
    field, fraction = magnitude >> 23, magnitude & (NORMAL - 1)
    return np.maximum(field, 1), np.where(field > 0, fraction | NORMAL, fraction)


def log2(integers: Bits) -> Bits:
    """The place of the leading one; 0 of 0."""
    place, rest = np.zeros_like(integers), integers
    for step in (32, 16, 8, 4, 2, 1):
        is_above = rest >> step > 0
        place = place + np.where(is_above, step, 0)
        rest = np.where(is_above, rest >> step, rest)
    return place


def _float32(integers: Bits, power: Bits) -> Bits:
    """The bits of integers · 2^power, which float32 holds: at most 24 significant bits."""
    leading = log2(integers)
    field = power + leading + 127
    normal = (field << 23) | (integers << np.maximum(23 - leading, 0) & (NORMAL - 1))
    # Below the normal numbers: a multiple of 2^-149.
    denormal = integers << np.clip(power + 149, 0, 60 - leading)
    return np.where(integers == 0, 0, np.where(field > 0, normal, denormal))


def _half_even(integers: Bits, dropped: Bits | int) -> Bits:
    """integers / 2^dropped to nearest even; dropped is at least 1."""
    whole = integers >> dropped
    rest, half = integers - (whole << dropped), np.int64(1) << (dropped - np.int64(1))
    return whole + ((rest > half) | ((rest == half) & (whole % 2 == 1)))


def _elements(fmt: DataFormat, bits: Bits) -> Bits:
    sign, magnitude = bits & SIGN, bits & (SIGN - 1)
    if fmt in INTEGERS:
        return _integers(fmt, sign, magnitude)
    field, significand = _parts(np.minimum(magnitude, LARGEST))
    is_infinite, is_denormal = magnitude == INFINITY, magnitude < NORMAL
    if fmt is DataFormat.Float32:
        result = magnitude
    elif fmt is DataFormat.Float16_b:
        rounded = _float32(_half_even(significand, 16), field - STEP + 16)
        result = np.where(is_infinite, INFINITY, np.minimum(rounded, INFINITY))
    elif fmt is DataFormat.Float16:
        # Below 2^-14 the steps are IEEE half's denormals, 2^-24; what they do not reach is flushed.
        dropped = np.clip(np.maximum(13, 126 - field), 0, 40)
        rounded = _float32(_half_even(significand, dropped), field - STEP + dropped)
        least, most = (127 - 14) << 23, (127 + 15) << 23 | 0x3FF << 13
        result = np.where(rounded < least, 0, np.minimum(rounded, most))
        result = np.where(is_infinite, most, result)
    else:
        assert fmt is DataFormat.Lf8
        least, most = (127 - 14) << 23, (127 + 16) << 23 | 3 << 21
        result = np.where(magnitude < least, 0, np.minimum(magnitude >> 21 << 21, most))
    result = np.where(is_denormal, 0, result) | sign
    return np.where(magnitude > INFINITY, NAN, result)


def _integers(fmt: DataFormat, sign: Bits, magnitude: Bits) -> Bits:
    low, high = INTEGERS[fmt]
    field, significand = _parts(np.minimum(magnitude, LARGEST))
    # 2^33 is above every format, and 2^-2 below every half.
    larger = significand << np.clip(field - STEP, 0, 10)
    smaller = _half_even(significand, np.clip(STEP - field, 1, 26))
    integer = np.where(field >= STEP, larger, smaller)
    integer = np.clip(np.where(sign != 0, -integer, integer), low, high)
    size = np.abs(integer)
    # A bound may have more bits than float32 holds.
    extra = np.maximum(log2(size) - 23, 0)
    kept = np.where(extra > 0, _half_even(size, np.maximum(extra, 1)), size)
    result = _float32(kept, extra) | np.where(integer < 0, SIGN, 0)
    return np.where(magnitude > INFINITY, 0, result)


def _blocks(fmt: DataFormat, bits: Bits) -> Bits:
    m = MAGNITUDE_BITS[fmt]
    blocks = _in_blocks(bits)
    magnitude = blocks & (SIGN - 1)
    has_nan = (magnitude > INFINITY).any(-1, keepdims=True)
    magnitude = np.minimum(magnitude, LARGEST)  # infinities; blocks with a NaN are replaced below
    shared = (magnitude >> 23).max(-1, keepdims=True)
    field, significand = _parts(magnitude)
    # A unit is 2^(shared - 127 - (m - 1)), so this many bits of the significand are below it.
    dropped = np.minimum(shared - 127 - (m - 1) - (field - STEP), 40)
    dropped = np.maximum(dropped, 1)  # a block without normal numbers, which is zero
    counted = np.minimum((significand + (np.int64(1) << (dropped - 1))) >> dropped, 2**m - 1)
    counted = np.where(shared == 0, 0, counted)
    power = shared - 127 - (m - 1)
    if fmt in SHORT_EXPONENT:
        short = shared - 127 + 15
        counted = np.where(short < 0, 0, counted)
        counted = np.where((short > 31) & (counted > 0), 2**m - 1, counted)
        power = np.minimum(short, 31) - 15 - (m - 1)
    result = np.where(counted == 0, 0, _float32(counted, power) | (blocks & SIGN))
    result = np.where(has_nan, NAN, result)
    return result.reshape(bits.shape[0], -1)[:, : bits.shape[1]]

"""The definition of docs/numerics.md in plain integers and fractions, one element or block at a time.

Written from the definition alone; nothing here comes from the package but the names of the formats. Values
are float32's bits (unsigned integers), so that -0, infinities and NaNs are told apart.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction

from torch_loom.numerics import DataFormat, MathFidelity

SIGN, INFINITY, NAN = 1 << 31, 0x7F800000, 0x7FC00000
BLOCK = 16

MAGNITUDE_BITS = {
    DataFormat.Bfp8: 7,
    DataFormat.Bfp8_b: 7,
    DataFormat.Bfp4: 3,
    DataFormat.Bfp4_b: 3,
    DataFormat.Bfp2: 1,
    DataFormat.Bfp2_b: 1,
}
SHORT_EXPONENT = (DataFormat.Bfp8, DataFormat.Bfp4, DataFormat.Bfp2)
INTEGERS = {
    DataFormat.Int8: (-128, 127),
    DataFormat.Int32: (-(2**31), 2**31 - 1),
    DataFormat.UInt16: (0, 2**16 - 1),
    DataFormat.RawUInt8: (0, 255),
    DataFormat.RawUInt16: (0, 2**16 - 1),
    DataFormat.RawUInt32: (0, 2**32 - 1),
}
FORMATS = [fmt for fmt in DataFormat if fmt is not DataFormat.Invalid]


def bits_of(value: float) -> int:
    """The bits of a Python float that float32 holds exactly."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def value_of(bits: int) -> Fraction:
    """The value of finite float32 bits."""
    exponent, mantissa = bits >> 23 & 0xFF, bits & 0x7FFFFF
    magnitude = (
        Fraction(mantissa) * Fraction(2) ** -149
        if exponent == 0
        else (mantissa + 2**23) * Fraction(2) ** (exponent - 150)
    )
    return -magnitude if bits & SIGN else magnitude


def is_nan(bits: int) -> bool:
    return bits & ~SIGN > INFINITY


def is_infinite(bits: int) -> bool:
    return bits & ~SIGN == INFINITY


def exact_bits(value: Fraction, sign: int = 0) -> int:
    """The bits of a value that float32 holds; of zero: with this sign."""
    if value == 0:
        return sign
    sign = SIGN if value < 0 else 0
    magnitude = abs(value)
    exponent = floor_log2(magnitude)
    step = Fraction(2) ** (max(exponent, -126) - 23)
    count = magnitude / step
    assert count.denominator == 1, f"{value} is no float32"
    if exponent < -126:
        return sign | int(count)
    assert exponent <= 127
    return sign | (exponent + 127) << 23 | (int(count) - 2**23)


def floor_log2(magnitude: Fraction) -> int:
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return exponent - 1 if Fraction(2) ** exponent > magnitude else exponent


def half_even(value: Fraction) -> int:
    whole = math.floor(value)
    rest = value - whole
    return whole + 1 if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2) else whole


def half_away(magnitude: Fraction) -> int:
    return math.floor(magnitude + Fraction(1, 2))


def to_grid(value: Fraction, mantissa_bits: int, lowest_exponent: int) -> Fraction:
    """Rounded to nearest even with this many mantissa bits, denormals included."""
    if value == 0:
        return value
    exponent = max(floor_log2(abs(value)), lowest_exponent)
    step = Fraction(2) ** (exponent - mantissa_bits)
    return half_even(abs(value) / step) * step * (-1 if value < 0 else 1)


def element(fmt: DataFormat, bits: int) -> int:
    """One float32 in a format whose elements stand alone."""
    sign = bits & SIGN
    if fmt in INTEGERS:
        low, high = INTEGERS[fmt]
        if is_nan(bits):
            return 0
        if is_infinite(bits):
            return bits_of(float(low if sign else high))
        integer = min(max(half_even(value_of(bits)), low), high)
        return exact_bits(to_grid(Fraction(integer), 23, -126))
    if is_nan(bits):
        return NAN
    is_denormal = bits & ~SIGN < 1 << 23
    if fmt in (DataFormat.Float32, DataFormat.Float16_b) and is_infinite(bits):
        return bits
    if is_denormal:
        return sign
    if fmt is DataFormat.Float32:
        return bits
    if fmt is DataFormat.Float16_b:
        rounded = to_grid(value_of(bits), 7, -126)
        return sign | INFINITY if abs(rounded) >= Fraction(2) ** 128 else exact_bits(rounded)
    if fmt is DataFormat.Float16:
        if is_infinite(bits):
            return sign | bits_of(65504.0)
        rounded = abs(to_grid(value_of(bits), 10, -14))
        if rounded < Fraction(2) ** -14:
            return sign
        return sign | exact_bits(min(rounded, Fraction(65504)))
    assert fmt is DataFormat.Lf8
    largest = Fraction(7, 4) * 2**16
    if is_infinite(bits):
        return sign | exact_bits(largest)
    magnitude = abs(value_of(bits))
    if magnitude < Fraction(2) ** -14:
        return sign
    step = Fraction(2) ** (floor_log2(magnitude) - 2)
    return sign | exact_bits(min(math.floor(magnitude / step) * step, largest))


def block(fmt: DataFormat, elements: Sequence[int]) -> list[int]:
    """Up to 16 float32 that share an exponent."""
    if any(is_nan(bits) for bits in elements):
        return [NAN] * len(elements)
    m = MAGNITUDE_BITS[fmt]
    elements = [bits & SIGN | 0x7F7FFFFF if is_infinite(bits) else bits for bits in elements]
    normal = [bits >> 23 & 0xFF for bits in elements if bits >> 23 & 0xFF]
    if not normal:
        return [0] * len(elements)
    shared = max(normal)
    unit = Fraction(2) ** (shared - 127 - (m - 1))
    magnitudes = [min(half_away(abs(value_of(bits)) / unit), 2**m - 1) for bits in elements]
    if fmt in SHORT_EXPONENT:
        short = shared - 127 + 15
        if short < 0:
            magnitudes = [0] * len(elements)
        elif short > 31:
            magnitudes = [2**m - 1 if magnitude else 0 for magnitude in magnitudes]
            short = 31
        unit = Fraction(2) ** (short - 15 - (m - 1))
    return [
        exact_bits(magnitude * unit * (-1 if bits & SIGN else 1))
        for magnitude, bits in zip(magnitudes, elements, strict=True)
    ]


def row(fmt: DataFormat, elements: Sequence[int]) -> list[int]:
    """A row along the last dimension."""
    if fmt not in MAGNITUDE_BITS:
        return [element(fmt, bits) for bits in elements]
    result: list[int] = []
    for start in range(0, len(elements), BLOCK):
        result += block(fmt, elements[start : start + BLOCK])
    return result


def counts(fmt: DataFormat, elements: Sequence[int]) -> tuple[int, int]:
    """What of a row the format cannot hold: values and blocks."""
    infinities = sum(is_infinite(bits) for bits in elements)
    nans = sum(is_nan(bits) for bits in elements)
    if fmt in (DataFormat.Float32, DataFormat.Float16_b):
        return 0, 0
    if fmt in MAGNITUDE_BITS:
        starts = range(0, len(elements), BLOCK)
        blocks = sum(any(is_nan(bits) for bits in elements[start : start + BLOCK]) for start in starts)
        return infinities, blocks
    return infinities + nans, 0


# ---- Packed tiles


def tile_bytes(fmt: DataFormat) -> int:
    if fmt in MAGNITUDE_BITS:
        return 64 + 1024 * (MAGNITUDE_BITS[fmt] + 1) // 8
    return 1024 * (element_bits(fmt) // 8)


def element_bits(fmt: DataFormat) -> int:
    name = fmt.name
    if fmt is DataFormat.Lf8 or name.endswith("8"):
        return 8
    return 16 if "16" in name else 32


def tile_order() -> list[tuple[int, int]]:
    """Row and column of each element of a tile, in the order in which it is packed."""
    faces = [(0, 0), (0, 16), (16, 0), (16, 16)]
    return [(top + r, left + c) for top, left in faces for r in range(16) for c in range(16)]


def pack_tile(fmt: DataFormat, matrix: Sequence[Sequence[int]]) -> bytes:
    """A 32 x 32 matrix of float32 bits as the bytes of a tile."""
    elements = [matrix[r][c] for r, c in tile_order()]
    if fmt not in MAGNITUDE_BITS:
        return b"".join(code(fmt, element(fmt, bits)) for bits in elements)
    m = MAGNITUDE_BITS[fmt]
    exponents, stream, place = bytearray(), 0, 0
    for start in range(0, 1024, BLOCK):
        values = block(fmt, elements[start : start + BLOCK])
        bias = 15 if fmt in SHORT_EXPONENT else 127
        if any(is_nan(bits) for bits in values):
            exponents.append(255)
            place += BLOCK * (m + 1)
            continue
        largest = max(bits >> 23 & 0xFF for bits in values)
        exponents.append(largest - 127 + bias if largest else 0)
        unit = Fraction(2) ** (largest - 127 - (m - 1))
        for bits in values:
            magnitude = abs(value_of(bits)) / unit
            assert magnitude.denominator == 1
            stream |= ((bits >> 31) << m | int(magnitude)) << place
            place += m + 1
    return bytes(exponents) + stream.to_bytes(1024 * (m + 1) // 8, "little")


def code(fmt: DataFormat, bits: int) -> bytes:
    sign = bits >> 31
    if fmt in INTEGERS:
        low, high = INTEGERS[fmt]
        integer = min(max(int(value_of(bits)), low), high)
        return integer.to_bytes(element_bits(fmt) // 8, "little", signed=low < 0)
    if fmt is DataFormat.Float32:
        return bits.to_bytes(4, "little")
    if fmt is DataFormat.Float16_b:
        return (bits >> 16).to_bytes(2, "little")
    mantissa_bits = 10 if fmt is DataFormat.Float16 else 2
    if is_nan(bits):
        assert fmt is DataFormat.Float16
        return (sign << 15 | 0x7E00).to_bytes(2, "little")
    value = abs(value_of(bits))
    small = 0
    if value:
        exponent = floor_log2(value)
        small = (exponent + 15) << mantissa_bits | int(
            (value / Fraction(2) ** exponent - 1) * 2**mantissa_bits
        )
    return (sign << (5 + mantissa_bits) | small).to_bytes(2 if fmt is DataFormat.Float16 else 1, "little")


# ---- Products


def parts(bits: int, high_mask: int, kept_mask: int) -> tuple[Fraction, Fraction]:
    high = value_of(bits & high_mask)
    return high, value_of(bits & kept_mask) - high


def passes(fidelity: MathFidelity, a: int, b: int) -> list[Fraction]:
    """The passes of one product, in order; `a` is the operand of SrcA, `b` that of SrcB."""
    a_high, a_low = parts(a, 0xFFF80000, 0xFFFFC000)
    b_high, b_low = parts(b, 0xFFFE0000, 0xFFFFE000)
    every = [a_high * b_high, a_low * b_high, a_high * b_low, a_low * b_low]
    return every[: max(1, fidelity.value)]

"""Tensix's matrix unit and packer, and GPUs' matrix instructions, in plain integers of numpy.

Written from the rules of docs/numerics.md alone, one step after another; slow, and nothing here comes from
the package. Arrays hold bits as int64; a row is one result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.int64]]

BF16, FP16, FP32 = 0, 1, 2  # destinations
WORMHOLE, BLACKHOLE = 0, 1


def _shift(value: Array, by: Array) -> Array:
    """Divide by 2^by and round, halves towards plus infinity; nothing is left beyond 30."""
    by = np.minimum(by, 62)
    half = np.where(by > 0, np.int64(1) << np.maximum(by - 1, 0), 0)
    return np.where(by > 30, 0, (value + half) >> by)


def _shift_away(value: Array, by: Array) -> Array:
    return np.sign(value) * _shift(np.abs(value), by)


def _length(value: Array) -> Array:
    """Bits of a number that is not negative."""
    return np.where(
        value > 0, np.floor(np.log2(np.maximum(value, 1).astype(np.longdouble))).astype(np.int64) + 1, 0
    )


def _decoded(dst: int, bits: Array) -> tuple[Array, Array]:
    """Signed significand of 24 bits and exponent field."""
    if dst == BF16:
        sign, exponent, mantissa = bits >> 15, bits >> 7 & 0xFF, (bits & 0x7F) << 16
    elif dst == FP16:
        sign, exponent, mantissa = bits >> 15, bits >> 10 & 0x1F, (bits & 0x3FF) << 13
    else:
        sign, exponent, mantissa = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    significand = np.where(exponent == 0, 0, mantissa | 1 << 23)
    return np.where(sign & 1, -significand, significand), exponent


def _encoded(dst: int, value: Array, exponent: Array) -> Array:
    """Bits of value · 2^(exponent - 23)."""
    kept = {BF16: 8, FP16: 11, FP32: 24}[dst]
    magnitude = np.abs(value)
    length = _length(magnitude)
    exponent = exponent + length - 24
    drop = np.maximum(length - kept, 0)
    rounded = _shift(magnitude, drop) << np.maximum(kept - length, 0)
    carried = rounded >> kept
    rounded = np.where(carried, rounded >> 1, rounded)
    exponent = exponent + carried
    mantissa = rounded & ((1 << (kept - 1)) - 1)
    width = kept - 1
    most = 31 if dst == FP16 else 254
    over = 0x7FFF if dst == FP16 else 255 << width
    bits = np.where(exponent > most, over, exponent << width | mantissa)
    sign = (value < 0).astype(np.int64) << (31 if dst == FP32 else 15)
    return np.where((value == 0) | (exponent <= 0), 0, sign | bits)


def _add(chip: int, dst: int, terms: list[tuple[Array, Array]], old: Array) -> Array:
    before, before_exponent = _decoded(dst, old)
    top = before_exponent
    for _, exponent in terms:
        top = np.maximum(top, exponent)
    parts = [_shift(value, top - exponent) for value, exponent in terms]
    last = _shift_away(before, top - before_exponent)
    if dst != FP32:
        thirteen = np.full_like(top, 13)
        parts = [_shift(part, thirteen) << 13 for part in parts]
        last = np.sign(last) * (_shift(np.abs(last), thirteen) << 13)
    total = sum(parts, last)
    if dst == FP32 and chip == WORMHOLE:
        top = np.where(total == -1, top + 27, top)
    result = _encoded(dst, total, top)
    return np.where(top <= 0, 0, result)


def mvmul(
    chip: int, dst: int, short: bool, masks: tuple[int, int], phase: int, b: Array, a: Array, old: Array
) -> Array:
    """One step: b and a [results, 16] words of SrcB and SrcA, old [results] bits of the destination.

    Args:
        short: operands have exponents of 5 bits.
        masks: the mantissa bits that are read of a and of b.
    """
    adjust = (97 if dst == FP32 else -15) if short else -127
    adjust -= (5 if phase in (1, 3) else 0) + (7 if phase >= 2 else 0)
    exponent_a, exponent_b = a >> 10 & 0xFF, b >> 10 & 0xFF
    significand_a = 1 << 10 | (a & masks[0])
    significand_b = 1 << 10 | (b & masks[1])
    part_a = significand_a >> 6 if phase in (0, 2) else significand_a >> 1 & 0b11111
    part_b = significand_b >> 4 if phase < 2 else (significand_b & 0b1111) * 8
    zero = (exponent_a == 0) | (exponent_b == 0)
    product = np.where(zero, 0, part_a * part_b)
    product = np.where((a ^ b) >> 18 & 1, -product, product)
    exponent = np.where(zero, max(adjust, 0), exponent_a + exponent_b + adjust)
    terms = []
    for group in (slice(0, 8), slice(8, 16)):
        largest = exponent[:, group].max(1)
        shifted = _shift_away(product[:, group], largest[:, None] - exponent[:, group])
        total = np.where(largest <= 0, 0, shifted.sum(1))
        terms.append((total << 13, np.maximum(largest, 0)))
    return _add(chip, dst, terms, old)


def chain(chip: int, dst: int, short: bool, masks: tuple[int, int], passes: int, b: Array, a: Array) -> Array:
    """A product over K, a multiple of 32: pass by pass in each 32, from a destination of zeros."""
    result = np.zeros(len(b), np.int64)
    for k in range(0, b.shape[1], 32):
        for phase in range(passes):
            for face in (k, k + 16):
                part = slice(face, face + 16)
                result = mvmul(chip, dst, short, masks, phase, b[:, part], a[:, part], result)
    return result


def packed(mode: int, values: Array) -> tuple[Array, Array]:
    """Blocks [n, 16] of the destination's bits in Bfp8_b, Bfp4_b or Bfp2_b: exponents and elements."""
    wide, source, target = mode >> 8, mode >> 4 & 15, mode & 15
    if not wide:
        values = values << 16
    magnitude, sign = values & 0x7FFFFFFF, values >> 31
    magnitude = np.minimum(magnitude, 0x7F800000)  # NaN is infinity
    if source == 5 and wide:
        magnitude = np.where(magnitude == 0x7F800000, magnitude, magnitude + 0x8000)
    magnitude >>= 16
    if source == 6:
        magnitude = magnitude + 1 & ~1
    exponent = magnitude >> 7
    exponent = np.where(values >> 23 & 0xFF, exponent, 0)
    shared = exponent.max(1, keepdims=True)
    apart = shared - exponent
    aligned = np.minimum(_shift(0x80 | magnitude & 0x7F, 1 + apart), 127)
    aligned = np.where((exponent == 0) | (apart >= 8), 0, aligned)
    dropped = {6: 0, 7: 4, 15: 6}[target]
    cut = aligned >> dropped
    return shared[:, 0], np.where(cut == 0, 0, sign << (7 - dropped) | cut)


LAYOUTS = {  # exponent bits, mantissa bits, bias
    "f16": (5, 10, 15),
    "bf16": (8, 7, 127),
    "tf32": (8, 10, 127),
    "e4m3": (4, 3, 7),
    "e5m2": (5, 2, 15),
    "f32": (8, 23, 127),
}


def _number(name: str, bits: Array) -> tuple[Array, Array, int]:
    """Signed significand, exponent and fraction bits of finite operands; zero has exponent -126."""
    width, fraction, bias = LAYOUTS[name]
    if name == "tf32":
        bits = bits >> 13
    field, mantissa = bits >> fraction & ((1 << width) - 1), bits & ((1 << fraction) - 1)
    significand = np.where(field == 0, mantissa, mantissa | 1 << fraction)
    exponent = np.where(significand == 0, -126, np.maximum(field, 1) - bias)
    return np.where(bits >> (width + fraction) & 1, -significand, significand), exponent, fraction


def instruction(
    names: tuple[str, str],
    sums: str,
    fraction_bits: int,
    kept_bits: int,
    step: int,
    a: Array,
    b: Array,
    c: Array,
) -> Array:
    """A matrix instruction of finite operands: a and b [results, K], c [results], all bits."""
    for first in range(0, a.shape[1], step):
        part = slice(first, first + step)
        left, left_exponent, left_fraction = _number(names[0], a[:, part])
        right, right_exponent, right_fraction = _number(names[1], b[:, part])
        old, old_exponent, old_fraction = _number(sums, c)
        top = np.maximum((left_exponent + right_exponent).max(1), old_exponent)

        def cut(value: Array, exponent: Array, fraction: int, top: Array = top) -> Array:
            shift = exponent - fraction - top.reshape(-1, *[1] * (exponent.ndim - 1)) + fraction_bits
            grown = np.abs(value) << np.clip(shift, 0, 62)
            return np.sign(value) * np.where(shift >= 0, grown, np.abs(value) >> np.clip(-shift, 0, 62))

        total = cut(left * right, left_exponent + right_exponent, left_fraction + right_fraction).sum(1)
        total = total + cut(old, old_exponent, old_fraction)
        new = (
            _half(total, top - fraction_bits)
            if sums == "f16"
            else _single(total, top - fraction_bits, kept_bits)
        )
        width, mantissa, _ = LAYOUTS[sums]
        infinite = c >> mantissa & ((1 << width) - 1) == (1 << width) - 1
        c = np.where(infinite, c, new)  # a sum that overflowed stays infinite
    return c


def _single(value: Array, power: Array, kept_bits: int) -> Array:
    magnitude = np.abs(value)
    exponent = np.maximum(power + _length(magnitude) - 1, -126)
    shift = power - exponent + kept_bits
    mantissa = np.where(shift >= 0, magnitude << np.clip(shift, 0, 62), magnitude >> np.clip(-shift, 0, 62))
    mantissa = mantissa << (23 - kept_bits)
    normal = mantissa >> 23
    bits = np.where(normal, exponent + 127, 0) << 23 | mantissa & 0x7FFFFF
    bits = np.where(exponent > 127, 0x7F800000, bits)
    return np.where(value == 0, 0, (value < 0).astype(np.int64) << 31 | bits)


def _half(value: Array, power: Array) -> Array:
    magnitude = np.abs(value)
    exponent = np.maximum(power + _length(magnitude) - 1, -14)
    shift = exponent - 10 - power
    down = np.clip(shift, 0, 62)
    half = np.where(shift > 0, (np.int64(1) << np.maximum(down - 1, 0)) - 1 + (magnitude >> down & 1), 0)
    mantissa = np.where(shift >= 0, (magnitude + half) >> down, magnitude << np.clip(-shift, 0, 62))
    carried = mantissa >> 11
    mantissa = np.where(carried, mantissa >> 1, mantissa)
    exponent = exponent + carried
    normal = mantissa >> 10
    bits = np.where(normal, exponent + 15, 0) << 10 | mantissa & 0x3FF
    bits = np.where(exponent > 15, 0x7C00, bits)
    return np.where(value == 0, 0, (value < 0).astype(np.int64) << 15 | bits)

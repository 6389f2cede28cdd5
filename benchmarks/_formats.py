"""Every bit of the conversions: each instruction set's kernels beside the exact reference of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.numerics import vector_reference
from tests.numerics.inputs import special_blocks
from torch_loom.numerics import DataFormat, nonfinite, quantize

Words = NDArray[np.uint32]

INSTRUCTION_SETS = ("baseline", "avx2", "avx512")
# Lengths of rows and their shares of the elements. The two largest matrices are written past the caches.
LENGTHS = {1: 2, 7: 2, 15: 2, 16: 2, 17: 2, 31: 2, 64: 2, 333: 2, 1000: 2, 1024: 41, 777: 41}
BLOCK = 16
SLICE_ELEMENTS = 1 << 17  # what of the reference's arrays stays in the caches


def _random(draw: np.random.Generator, count: int) -> Words:
    """Every exponent as likely as any, NaNs and infinities among them."""
    return draw.integers(0, 1 << 32, (count, BLOCK), np.uint32)


def _close(draw: np.random.Generator, count: int) -> Words:
    """Blocks that hold more than their largest: exponents within 20, around any."""
    near = draw.integers(1, 255, (count, 1), np.int64) - draw.integers(0, 21, (count, BLOCK), np.int64)
    fraction = draw.integers(0, 1 << 24, (count, BLOCK), np.int64)  # with the sign
    words = np.maximum(near, 0) << 23 | (fraction & 0x7FFFFF) | (fraction >> 23 << 31)
    return words.astype(np.uint32)


def _halves(draw: np.random.Generator, count: int) -> Words:
    """Exact halves of a block's steps and their neighbours, beside a value that sets the block's exponent."""
    shared = draw.integers(1, 255, (count, 1), np.int64)
    significant = draw.choice(np.array([1, 3, 7], np.int64), (count, 1))
    odd = 2 * draw.integers(0, 1 << significant, (count, BLOCK), np.int64) + 1  # in half steps
    leading = vector_reference.log2(odd)
    field = shared - significant + leading
    near = (np.maximum(field, 0) << 23) | (odd << (23 - leading) & 0x7FFFFF)
    near = np.maximum(near + draw.integers(-1, 2, (count, BLOCK), np.int64), 0)
    near[:, :1] = (shared << 23) | draw.integers(0, 1 << 23, (count, 1), np.int64)
    return (np.minimum(near, 0x7F7FFFFF) | draw.integers(0, 2, (count, BLOCK), np.int64) << 31).astype(
        np.uint32
    )


def _boundaries(draw: np.random.Generator, count: int) -> Words:
    """What lies about the rounding points of single elements, in every binade."""
    shape = (count, BLOCK)
    half = np.int64(1) << draw.integers(12, 23, shape, np.int64)
    word = draw.integers(0, 1 << 32, shape, np.int64) & ~(2 * half - 1)
    word = word + draw.choice(np.array([0, 1], np.int64), shape) * half
    return ((word + draw.integers(-1, 2, shape, np.int64)) & 0xFFFFFFFF).astype(np.uint32)


def _special(draw: np.random.Generator, count: int) -> Words:
    """The blocks that the definition names, their elements in any order."""
    blocks = torch.stack(special_blocks()).view(torch.int32).numpy().view(np.uint32)
    return draw.permuted(blocks[draw.integers(0, len(blocks), count)], axis=1)


KINDS = (_random, _close, _halves, _boundaries, _special)


def matrices(count: int, seed: int = 0) -> Iterator[Words]:
    """Float32 bits [rows, length], at least `count` elements in all: every kind in every length of rows."""
    draw = np.random.default_rng(seed)
    for length, share in LENGTHS.items():
        num_rows = -(-count * share // (100 * length))
        num_blocks = -(-num_rows * length // BLOCK)
        parts = [kind(draw, -(-num_blocks // len(KINDS))) for kind in KINDS]
        blocks = draw.permutation(np.concatenate(parts))
        yield blocks.reshape(-1)[: num_rows * length].reshape(num_rows, length)


def differing(wanted: Words, got: Words) -> int:
    """How many words differ; any NaN is as good as any other."""
    both_nan = (wanted & 0x7FFFFFFF > 0x7F800000) & (got & 0x7FFFFFFF > 0x7F800000)
    return int(((wanted != got) & ~both_nan).sum())


def _reference(fmt: DataFormat, words: Words) -> tuple[Words, tuple[int, int]]:
    result, counted = np.empty_like(words), [0, 0]
    step = max(1, SLICE_ELEMENTS // words.shape[1])
    for first in range(0, len(words), step):
        part = words[first : first + step]
        result[first : first + step] = vector_reference.rows(fmt, part)
        for place, number in enumerate(vector_reference.counts(fmt, part)):
            counted[place] += number
    return result, (counted[0], counted[1])


def differences(fmt: DataFormat, count: int) -> dict[str, Any]:
    """How many of at least `count` elements differ from the reference, under all instruction sets."""
    use = torch.ops.loom_numerics._use_kernels
    elements, wrong, sets = 0, 0, []
    for words in matrices(count):
        wanted, counted = _reference(fmt, words)
        values = torch.from_numpy(words.view(np.int32)).view(torch.float32)
        elements += words.size
        sets = [name for name in INSTRUCTION_SETS if use(name)]
        for name in sets:
            use(name)
            got = quantize(values, fmt)
            wrong += differing(wanted, got.view(torch.int32).numpy().view(np.uint32))
            wrong += sum(abs(a - b) for a, b in zip(counted, nonfinite(got), strict=True))
        use("")
    return {
        "name": fmt.name,
        "elements": elements,
        "instruction_sets": sets,
        "differences": wrong,
        "met": wrong == 0,
    }

"""CUDA's random numbers, computed element by element: slow, and written apart from the kernels under test.

From cuRAND's documentation (Philox with a key of the seed; the thread's number in the upper half of the
counter) and PyTorch's public kernels: a grid of as many blocks of 256 threads as the card holds, of which
each thread takes every n-th element, four at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

MASK = 0xFFFFFFFF


def philox(seed: int, counter: int, thread: int, rounds: int = 10) -> tuple[int, int, int, int]:
    """Return the four words of one call."""
    a, b, c, d = counter & MASK, counter >> 32, thread & MASK, thread >> 32
    key = [seed & MASK, seed >> 32]
    for _ in range(rounds):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ key[0], right & MASK, (left >> 32) ^ d ^ key[1], left & MASK
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return a, b, c, d


def threads_of(count: int, cores: int, threads_per_core: int = 2048) -> int:
    """Return how many threads draw for so many elements."""
    return 256 * min(-(-count // 256), cores * (threads_per_core // 256))


def step_of(count: int, cores: int, unroll: int = 4) -> int:
    """Return how far the offset of the generator moves."""
    return ((count - 1) // (threads_of(count, cores) * unroll) + 1) * 4


def calls(count: int, cores: int, unroll: int = 4) -> Iterator[tuple[int, int, int]]:
    """Yield for each element the thread that draws it, in which of its calls, and as which of its numbers."""
    threads = threads_of(count, cores)
    for element in range(count):
        wave, thread = divmod(element, threads)
        yield thread, wave // unroll, wave % unroll


def uniform(word: int) -> np.float32:
    """Return the number above 0 and up to 1 of a word."""
    return np.float32(word) * np.float32(2.0**-32) + np.float32(2.0**-33)


def uniform_double(low: int, high: int) -> float:
    """Return the number above 0 and up to 1 of two words."""
    return (low ^ (high << 21)) * 2.0**-53 + 2.0**-54


def normals(x: int, y: int) -> tuple[float, float]:
    """Return two normal numbers of two words, computed in float64 of the float32 radius and angle."""
    turn = np.float32(2.3283064e-10 * 2 * math.pi)
    angle = float(np.float32(np.float32(y) * turn) + np.float32(turn / 2))
    radius = math.sqrt(-2 * math.log(float(uniform(x))))
    return radius * math.sin(angle), radius * math.cos(angle)


def words(count: int, seed: int, offset: int, cores: int) -> list[int]:
    """Return the word of each element, where a thread draws four at a time."""
    return [philox(seed, offset // 4 + call, thread)[word] for thread, call, word in calls(count, cores)]


def wide_words(count: int, seed: int, offset: int, cores: int) -> list[tuple[int, int]]:
    """Return the two words of each element, where a thread draws two at a time."""
    found = []
    for thread, call, place in calls(count, cores, 2):
        four = philox(seed, offset // 4 + call, thread)
        found.append(four[2 * place : 2 * place + 2])
    return found


def rand(count: int, seed: int, offset: int = 0, cores: int = 132) -> np.ndarray:
    """Return ``torch.rand`` in float32."""
    numbers = np.array([uniform(word) for word in words(count, seed, offset, cores)], np.float32)
    return np.where(numbers == 1, np.float32(0), numbers)


def randn(count: int, seed: int, offset: int = 0, cores: int = 132) -> np.ndarray:
    """Return ``torch.randn`` in float64, before it is rounded to float32."""
    found = []
    for thread, call, place in calls(count, cores):
        four = philox(seed, offset // 4 + call, thread)
        found.append(normals(*four[place // 2 * 2 : place // 2 * 2 + 2])[place % 2])
    return np.array(found)


def kept_by_dropout(count: int, p: float, seed: int, offset: int, cores: int, width: int) -> np.ndarray:
    """Return what dropout keeps, with so many neighbouring elements a thread (1: the plain kernel)."""
    limit = np.float32(1 - p)
    if width == 1:
        return np.array([uniform(word) < limit for word in words(count, seed, offset, cores)])
    threads, per_turn = threads_of(count, cores), max(1, width // 4)
    found = []
    for element in range(count):
        vector, place = divmod(element, width)
        turn, thread = divmod(vector, threads)
        four = philox(seed, offset // 4 + turn * per_turn + place // 4, thread)
        found.append(uniform(four[place % 4]) < limit)
    return np.array(found)


def permutation(count: int, seed: int, offset: int, cores: int) -> list[int]:
    """Return ``torch.randperm``: the numbers in the order of random keys; equal keys are shuffled."""
    limit = 12 * math.log(0.9)
    bits = min(64, math.ceil(math.log2(count - (6 * count * count + 1) / limit)))
    assert bits < 32  # signs do not take part
    keys = [
        ((high << 32 | low) % (2**32 - 1) - 2**31) & ((1 << bits) - 1)
        for high, low in wide_words(count, seed, offset, cores)
    ]
    order = sorted(range(count), key=keys.__getitem__)
    offset += step_of(count, cores, 2)
    first = 0
    while first < count:
        size = 1
        while first + size < count and keys[order[first + size]] == keys[order[first]]:
            size += 1
        drawn = iter([word for call in range(size) for word in philox(seed, offset // 4 + call, first)])
        for i in range(size - 1, 0, -1):
            other = next(drawn) % (i + 1)
            order[first + i], order[first + other] = order[first + other], order[first + i]
        first += size
    return order


def kept_by_flash(
    batch: int, heads: int, rows: int, columns: int, p: float, seed: int, offset: int
) -> np.ndarray:
    """Return what dropout keeps of flash attention's weights.

    From FlashAttention's public sources (dropout.h, philox.cuh, of seven rounds): a thread of a warp draws 16
    bytes for the weights that it holds of a tile of 16 rows and 32 columns.
    """
    kept = np.zeros((batch, heads, rows, columns), bool)
    limit = math.floor((1 - p) * 255)
    for b, h, row, column in np.ndindex(kept.shape):
        lane = row % 8 * 4 + column % 8 // 2
        tile = (column // 32) << 32 | (row // 16)
        four = philox(seed, offset + (b * heads + h) * 32 + lane, tile, rounds=7)
        place = 4 * (column % 32 // 8) + 2 * (row % 16 // 8) + column % 2
        kept[b, h, row, column] = (four[place // 4] >> (8 * (place % 4))) & 0xFF <= limit
    return kept


def triton_uniform(word: int) -> np.float32:
    """Return ``tl.rand``'s number of a word: 31 bits, from 0 and below 1."""
    folded = word if word < 2**31 else MASK - word
    return np.float32(folded) * np.float32(4.6566127342e-10)


def triton_rand(count: int, seed: int) -> np.ndarray:
    """Return what a pointwise kernel of Inductor's draws: four neighbours share a call."""
    return np.array([triton_uniform(philox(seed, i // 4, 0)[i % 4]) for i in range(count)], np.float32)


def triton_randn(count: int, seed: int) -> np.ndarray:
    """Return ``tl.randn4x``'s numbers, in float64."""
    found = []
    for i in range(count):
        pair = philox(seed, i // 4, 0)[i % 4 // 2 * 2 :][:2]
        first, second = max(1e-7, float(triton_uniform(pair[0]))), float(triton_uniform(pair[1]))
        turn = math.sin if i % 2 else math.cos
        found.append(math.sqrt(-2 * math.log(first)) * turn(2 * math.pi * second))
    return np.array(found)


def triton_randint(count: int, seed: int, low: int, high: int) -> list[int]:
    """Return Inductor's whole numbers: 64 bits of a call for each element."""
    found = []
    for i in range(count):
        first, second = philox(seed, i, 0)[:2]
        found.append((second << 32 | first) % (high - low) + low)
    return found


def sine(turn: float) -> float:
    """Return sin(pi * turn) of a number up to 2, without what pi times it would lose."""
    if turn > 1:
        return -sine(turn - 1)
    turn = min(turn, 1 - turn)
    return math.cos(math.pi * (0.5 - turn)) if turn > 0.25 else math.sin(math.pi * turn)


def cosine(turn: float) -> float:
    """Return cos(pi * turn), alike."""
    turn = min(turn, 2 - turn)
    return math.cos(math.pi * turn) if turn < 0.25 else math.sin(math.pi * (0.5 - turn))


def double_normals(count: int, seed: int, offset: int, cores: int) -> np.ndarray:
    """Return ``torch.randn`` in float64: cuRAND's Box and Muller of 53 bits each, two numbers a call."""
    found = []
    for thread, call, place in calls(count, cores, 2):
        four = philox(seed, offset // 4 + call, thread)
        first, second = (four[i] ^ four[i + 1] << 21 for i in (0, 2))
        radius = math.sqrt(-2 * math.log(first * 2.0**-53 + 2.0**-54))
        turn = second * 2.0**-52 + 2.0**-53
        found.append(radius * (cosine(turn) if place else sine(turn)))
    return np.array(found)


def uniforms(count: int, seed: int, offset: int, cores: int, *, double: bool = False) -> np.ndarray:
    """Return the numbers above 0 and up to 1 that kernels transform, in float64 or float32."""
    if double:
        pairs = wide_words(count, seed, offset, cores)
        return np.array([uniform_double(*pair) for pair in pairs])
    return np.array([uniform(word) for word in words(count, seed, offset, cores)], np.float32)

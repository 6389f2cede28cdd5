"""Float32 values that exercise a format: random ones, boundaries, and blocks made to break it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SEED = 12


def bits(tensor: Tensor) -> list[int]:
    """The bits of a float32 tensor, unsigned, in the order of its elements."""
    return [value & 0xFFFFFFFF for value in tensor.contiguous().view(torch.int32).flatten().tolist()]


def canonical(values: list[int]) -> list[int]:
    """The same with one NaN: which NaN a format keeps is not defined."""
    return [0x7FC00000 if value & 0x7FFFFFFF > 0x7F800000 else value for value in values]


def of_bits(values: list[int]) -> Tensor:
    signed = [value - (1 << 32) if value >= 1 << 31 else value for value in values]
    return torch.tensor(signed, dtype=torch.int32).view(torch.float32)


def generator(seed: int = SEED) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 3, **kwargs: Any) -> Tensor:
    """Normally distributed values."""
    return torch.randn(shape, generator=generator(seed), **kwargs)


def random_bits(count: int, seed: int = SEED) -> Tensor:
    """Every exponent as likely as any, NaNs and infinities among them."""
    drawn = torch.randint(-(2**31), 2**31, (count,), generator=generator(seed), dtype=torch.int64)
    return drawn.to(torch.int32).view(torch.float32)


def finite(count: int, seed: int = SEED) -> Tensor:
    """Values of all finite exponents."""
    drawn = random_bits(count, seed).view(torch.int32)
    return torch.where(drawn & 0x7F800000 == 0x7F800000, drawn & ~0x40000000, drawn).view(torch.float32)


def close(count: int, seed: int = SEED) -> Tensor:
    """Values whose exponents lie within some 20 of each other: blocks hold more than their largest."""
    scales = torch.randint(-20, 1, (count,), generator=generator(seed)).float().exp2()
    return torch.randn(count, generator=generator(seed + 1)) * scales


def boundaries(bits_kept: list[int]) -> Tensor:
    """Exact halves and their neighbours at each precision, in several binades, of both signs."""
    values = []
    for exponent in (0, 1, 2, 7, 8, 9, 100, 111, 112, 113, 126, 127, 128, 142, 143, 144, 200, 253, 254):
        for kept in bits_kept:
            half = 1 << (23 - kept) >> 1
            for mantissa in (0, half, 3 * half, (1 << 23) - half, (1 << 23) - 1, 1):
                for change in (-1, 0, 1):
                    magnitude = (exponent << 23 | mantissa & 0x7FFFFF) + change
                    if 0 <= magnitude < 0x7F800000:
                        values += [magnitude, magnitude | 1 << 31]
    return of_bits(values)


def special_blocks() -> list[Tensor]:
    """Blocks named in the definition: zeros, one huge element, denormals, signed zeros, infinities, NaNs."""
    huge, tiny, denormal, infinity, nan = 3.0e38, 1.0e-38, 1.0e-40, float("inf"), float("nan")
    ones = torch.ones(16)

    def with_(*values: float) -> Tensor:
        block = ones.clone()
        block[: len(values)] = torch.tensor(values)
        return block

    return [
        torch.zeros(16),
        -torch.zeros(16),
        torch.tensor([0.0, -0.0] * 8),
        torch.full((16,), denormal),
        torch.tensor([tiny, -denormal, denormal, 1.2e-38] * 4),
        torch.tensor([1.1754944e-38, -1.1754942e-38, 5.9e-39, 1e-45] * 4),
        torch.tensor([2.0**-122, 2.0**-126, -(2.0**-127), 2.0**-128] * 4),
        with_(huge),
        with_(-huge, huge, denormal),
        with_(infinity),
        with_(-infinity, infinity),
        with_(nan),
        with_(nan, infinity),
        with_(0.5 + 2.0**-7, -(0.5 + 2.0**-8), 1.5, 2.0**-6, 2.0**-7, -(2.0**-7), 2.0**-7 - 2.0**-31),
        torch.full((16,), 1.9999999),
        of_bits([0x7F7FFFFF] * 16),
        torch.full((16,), 65519.996),
        torch.full((16,), 65520.0),
        torch.tensor([114688.0, 114687.99, 131071.99, 131072.0] * 4),
        torch.tensor([2.0**-14, 2.0**-14 - 2.0**-25, 2.0**-14 - 2.0**-24, 6.1e-5] * 4),
        torch.tensor([2.0**-15, 2.0**-16, 2.0**-14, -(2.0**-15)] * 4),
        torch.tensor(
            [0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, -128.5, 254.5, 255.5, 65534.5, 65535.5] + [0.0] * 4
        ),
        torch.tensor(
            [
                2147483647.0,
                2147483648.0,
                -2147483648.0,
                4294967295.0,
                8388607.5,
                8388608.0,
                4194303.5,
                -8388607.5,
            ]
            * 2
        ),
    ]

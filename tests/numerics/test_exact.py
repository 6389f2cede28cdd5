"""Every format bit for bit against the reference: every boundary, every length, every instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.numerics import reference, silicon_reference
from tests.numerics.inputs import (
    bits,
    boundaries,
    canonical,
    close,
    finite,
    generator,
    of_bits,
    random_bits,
    special_blocks,
)
from torch_loom import numerics
from torch_loom.numerics import DataFormat, MathFidelity

FORMATS = pytest.mark.parametrize("fmt", reference.FORMATS, ids=lambda fmt: fmt.name)
FIDELITIES = [member for member in MathFidelity if member is not MathFidelity.Invalid]


SETS = ["avx512", "avx2", "baseline"]


def instruction_sets() -> Iterator[str]:
    """Runs the body of a loop under the kernels of every instruction set that the processor has."""
    try:
        for name in SETS:
            if torch.ops.loom_numerics._use_kernels(name):
                assert torch.ops.loom_numerics._kernels() == name
                yield name
    finally:
        torch.ops.loom_numerics._use_kernels("")


def expected(fmt: DataFormat, rows: Tensor) -> list[int]:
    result: list[int] = []
    for row in rows.reshape(-1, rows.shape[-1]):
        result += reference.row(fmt, bits(row))
    return result


def assert_exact(fmt: DataFormat, rows: Tensor) -> None:
    wanted = expected(fmt, rows)
    for name in instruction_sets():
        got = canonical(bits(numerics.quantize(rows, fmt)))
        wrong = [place for place, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b]
        told = [f"{bits(rows)[place]:#x} -> {got[place]:#x}, not {wanted[place]:#x}" for place in wrong[:3]]
        assert not wrong, f"{name}: {len(wrong)} of {len(got)} differ: {told}"


@pytest.mark.sampled(5)
@FORMATS
@pytest.mark.parametrize("make", [random_bits, finite, close], ids=lambda make: make.__name__)
def test_random_values(fmt: DataFormat, make: object) -> None:
    assert callable(make)
    assert_exact(fmt, make(32 * 64).view(32, 64))


@pytest.mark.sampled(5)
@FORMATS
def test_boundaries(fmt: DataFormat) -> None:
    values = boundaries([1, 3, 7, 10])
    # Alone in a block, and beside a larger and a smaller neighbour.
    assert_exact(fmt, values.unsqueeze(1))
    assert_exact(fmt, values[: len(values) // 16 * 16].view(-1, 16))
    pairs = torch.stack([values, values.roll(7)], 1)[::3]
    assert_exact(fmt, pairs)


@FORMATS
def test_special_blocks(fmt: DataFormat) -> None:
    blocks = torch.stack(special_blocks())
    assert_exact(fmt, blocks)
    assert_exact(fmt, blocks.flatten())
    for shift in (1, 5, 15):
        assert_exact(fmt, blocks.roll(shift, 1))


@pytest.mark.long
@pytest.mark.sampled(5)
@FORMATS
def test_several_rows_in_a_vector(fmt: DataFormat) -> None:
    # A row ends a block. Some rows of a vector are special, the others ordinary; the last vector is not full.
    values = torch.cat([*special_blocks(), random_bits(1024), close(1024)])
    for columns in (1, 2, 4, 8):
        assert_exact(fmt, values[: len(values) // columns * columns - columns].view(-1, columns))


@pytest.mark.sampled(5)
@FORMATS
def test_every_length(fmt: DataFormat) -> None:
    for length in range(65):
        rows = torch.stack([close(length, seed) for seed in range(3)])
        if length == 0:
            assert numerics.quantize(rows, fmt).shape == (3, 0)
        else:
            assert_exact(fmt, rows)
            assert_exact(fmt, rows[0])


@FORMATS
def test_converting_twice_changes_nothing(fmt: DataFormat) -> None:
    values = torch.cat([random_bits(4096), close(4096), boundaries([3, 7]), *special_blocks()])
    once = numerics.quantize(values[: len(values) // 16 * 16].view(-1, 16), fmt)
    assert canonical(bits(numerics.quantize(once, fmt))) == canonical(bits(once))


@FORMATS
def test_counts_of_what_is_not_finite(fmt: DataFormat) -> None:
    rows = torch.stack(special_blocks())
    counted = [reference.counts(fmt, bits(row)) for row in rows]
    assert numerics.nonfinite(numerics.quantize(rows, fmt)) == tuple(map(sum, zip(*counted, strict=True)))


@pytest.mark.parametrize("first", [DataFormat.Float16_b, DataFormat.Float16, DataFormat.Float32], ids=str)
@FORMATS
def test_two_conversions_in_one_pass(fmt: DataFormat, first: DataFormat) -> None:
    for values in (random_bits(1024), close(1000), boundaries([3, 7]), torch.cat(special_blocks())):
        by_turns = numerics.quantize(numerics.quantize(values, first), fmt)
        for name in instruction_sets():
            fused = torch.ops.loom_numerics.quantize(values, fmt.value, first.value)
            assert canonical(bits(fused)) == canonical(bits(by_turns)), name


@FORMATS
def test_tiles(fmt: DataFormat) -> None:
    matrix = torch.cat([finite(512), close(256), torch.cat(special_blocks()[:16])]).view(32, 32)
    if fmt is DataFormat.Lf8:
        matrix = matrix.nan_to_num(0.0, posinf=float("inf"), neginf=float("-inf"))
    tiles = numerics.pack(matrix, fmt)
    assert tiles.shape == (1, reference.tile_bytes(fmt)) == (1, fmt.bytes_per_tile)
    assert bytes(tiles[0].tolist()) == reference.pack_tile(fmt, [bits(row) for row in matrix])
    back = numerics.unpack(tiles, fmt, (32, 32))
    assert canonical(bits(back)) == canonical(bits(numerics.quantize(matrix, fmt)))


@FORMATS
@pytest.mark.parametrize("shape", [(), (5,), (33, 7), (2, 3, 40, 50), (0, 4), (3, 0), (1, 64, 64)], ids=str)
def test_tiles_of_shapes(fmt: DataFormat, shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=generator()) * 10
    tiles = numerics.pack(values, fmt)
    assert tiles.shape == (numerics.num_tiles(shape), fmt.bytes_per_tile)
    assert torch.equal(numerics.unpack(tiles, fmt, shape), numerics.quantize(values, fmt))


def test_integers_beyond_float32_are_exact() -> None:
    values = torch.tensor([2**31 - 1, 2**31, -(2**31), 2**24 + 1, -7, 2**40])
    assert numerics.quantize(values, DataFormat.Int32).tolist() == [
        2**31 - 1,
        2**31 - 1,
        -(2**31),
        2**24 + 1,
        -7,
        2**31 - 1,
    ]
    tiles = numerics.pack(values, DataFormat.Int32)[0].view(torch.int32)
    assert tiles[:6].tolist() == [2**31 - 1, 2**31 - 1, -(2**31), 2**24 + 1, -7, 2**31 - 1]
    assert numerics.quantize(torch.tensor([300, -5], dtype=torch.int16), DataFormat.RawUInt8).tolist() == [
        255,
        0,
    ]


def test_wide_values_are_rounded_to_float32_first() -> None:
    # Just above the half of a Bfp8 step in float64, on it in float32 — and just below, and rounded up by
    # both.
    value = torch.tensor([1.0, 2.0**-7 - 2.0**-40], dtype=torch.float64)
    assert numerics.quantize(value, DataFormat.Bfp8_b).tolist() == [1.0, 2.0**-6]
    assert numerics.quantize(value.float(), DataFormat.Bfp8_b).tolist() == [1.0, 2.0**-6]


# ---- Products


def spread(rows: int, columns: int, seed: int) -> Tensor:
    return close(rows * columns, seed).view(rows, columns)


@pytest.mark.parametrize("chip", ["wormhole_b0", "blackhole"])
@pytest.mark.parametrize("accumulate", [DataFormat.Float32, DataFormat.Float16_b], ids=str)
@pytest.mark.parametrize("fidelity", FIDELITIES, ids=str)
@pytest.mark.parametrize("depth", [1, 17, 96])
def test_silicon_matmul(fidelity: MathFidelity, accumulate: DataFormat, depth: int, chip: str) -> None:
    left, right = spread(9, depth, 1), spread(depth, 19, 2)
    is_wide = accumulate is DataFormat.Float32
    padding = (0, -depth % 32)

    def words(values: Tensor) -> Any:
        rows = torch.nn.functional.pad(values, padding).numpy().view(np.uint32).astype(np.int64)
        return rows >> 13 & (0x7FFFF if is_wide else 0x7FFF8)

    b, a = np.repeat(words(left), 19, 0), np.tile(words(right.T.contiguous()), (9, 1))
    passes = FIDELITIES.index(fidelity) + 1
    dst = silicon_reference.FP32 if is_wide else silicon_reference.BF16
    mask = 0x3FF if is_wide else 0x3F8
    wanted = silicon_reference.chain(int(chip == "blackhole"), dst, False, (mask, mask), passes, b, a)
    for name in instruction_sets():
        got = numerics.matmul(
            left, right, fidelity=fidelity, accumulate=accumulate, mode="silicon", chip=chip
        )
        found = got.numpy().view(np.uint32).astype(np.int64).reshape(-1)
        np.testing.assert_array_equal(found >> (0 if is_wide else 16), wanted, err_msg=name)


def masked(values: Tensor, mask: int) -> Tensor:
    return of_bits([value & mask for value in bits(values)]).view(values.shape)


@pytest.mark.parametrize("fidelity", FIDELITIES, ids=str)
def test_fast_matmul_is_a_matmul_over_masked_operands(fidelity: MathFidelity) -> None:
    left, right = spread(9, 50, 1), spread(50, 19, 2)
    a_mask = 0xFFF80000 if fidelity is MathFidelity.LoFi else 0xFFFFC000
    b_mask = 0xFFFFE000 if fidelity is MathFidelity.HiFi4 else 0xFFFE0000
    wanted = masked(left, b_mask) @ masked(right, a_mask)
    if fidelity is MathFidelity.HiFi3:
        low = masked(left, 0xFFFFE000) - masked(left, 0xFFFE0000)
        wanted = wanted + low @ masked(right, 0xFFF80000)
    assert torch.equal(numerics.matmul(left, right, fidelity=fidelity), wanted)
    if fidelity is MathFidelity.HiFi3:  # of 16 bits: one product
        wanted = numerics.matmul(left, right, fidelity=MathFidelity.HiFi4)
    for accumulate in (DataFormat.Float16_b, DataFormat.Float16):
        rounded = numerics.quantize(wanted, accumulate)
        assert torch.equal(numerics.matmul(left, right, fidelity=fidelity, accumulate=accumulate), rounded)
        out = numerics.matmul(
            left, right, fidelity=fidelity, accumulate=accumulate, out_format=DataFormat.Bfp8_b
        )
        assert torch.equal(out, numerics.quantize(rounded, DataFormat.Bfp8_b))


@pytest.mark.long
@pytest.mark.parametrize("fidelity", FIDELITIES, ids=str)
def test_fast_matmul_is_within_its_bound(fidelity: MathFidelity) -> None:
    left, right = spread(9, 300, 1), spread(300, 19, 2)
    got = numerics.matmul(left, right, fidelity=fidelity)
    for i in range(9):
        for j in range(0, 19, 5):
            products = [
                sum(reference.passes(fidelity, a, b))
                for b, a in zip(bits(left[i]), bits(right[:, j]), strict=True)
            ]
            error = abs(got[i, j].item() - float(sum(products)))
            assert error <= 300 * 2.0**-24 * float(sum(abs(product) for product in products))


@pytest.mark.parametrize("fidelity", FIDELITIES, ids=str)
def test_infinities_and_nans_pass_through_fast_products(fidelity: MathFidelity) -> None:
    infinity = float("inf")
    left = torch.tensor([[infinity, 1.0], [1.0, 2.0], [float("nan"), 1.0]])
    right = torch.tensor([[1.0, 3.0], [2.0, -infinity]])
    got = numerics.matmul(left, right, fidelity=fidelity)
    assert got[0, 0] == infinity
    assert got[0, 1].isnan()
    assert got[1].tolist() == [5.0, -infinity]
    assert got[2].isnan().all()


def test_exponent_255_is_a_number_to_the_matrix_unit() -> None:
    infinity = float("inf")
    left = torch.tensor([[infinity, 1.0], [infinity, -infinity]])
    right = torch.tensor([[2.0**-100], [2.0**-100]])
    got = numerics.matmul(left, right, mode="silicon")
    assert got.tolist() == [[2.0**28], [0.0]]


def test_int8_is_exact() -> None:
    left = torch.randint(-128, 128, (3, 5000), generator=generator()).float()
    right = torch.randint(-128, 128, (5000, 4), generator=generator(1)).float()
    exact = left.double() @ right.double()
    for mode in ("fast", "silicon"):
        got = numerics.matmul(left, right, accumulate=DataFormat.Int32, mode=mode)
        assert torch.equal(got, exact.float())


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, (0, 2), "same", "valid"], ids=str)
def test_silicon_conv2d_is_a_matmul_of_windows(groups: int, padding: object) -> None:
    x = spread(2 * 4, 7 * 6, 1).view(2, 4, 7, 6)
    weight = spread(6, 4 // groups * 3 * 2, 2).view(6, 4 // groups, 3, 2)
    how = {"fidelity": MathFidelity.HiFi2, "accumulate": DataFormat.Float16_b}
    got = numerics.conv2d(x, weight, None, 1, padding, groups=groups, mode="silicon", **how)  # type: ignore[arg-type]
    fast = numerics.conv2d(x, weight, None, 1, padding, groups=groups, **how)  # type: ignore[arg-type]
    assert got.shape == fast.shape
    if padding != 0:
        torch.testing.assert_close(got, fast, rtol=2**-6, atol=0.1)
        return
    channels = 4 // groups
    for n, o, i, j in [(0, 0, 0, 0), (1, 5, 4, 4), (1, 2, 3, 1)]:
        first = o // (6 // groups) * channels
        window = x[n, first : first + channels, i : i + 3, j : j + 2].reshape(-1)
        wanted = numerics.matmul(window, weight[o].reshape(-1), mode="silicon", **how)  # type: ignore[arg-type]
        assert got[n, o, i, j] == wanted

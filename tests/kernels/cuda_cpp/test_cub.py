"""Kernels in the style of published libraries, against the same in torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_loom.device as loom
from tests.kernels.cuda_cpp.test_thrust import library_of, pointer, runs

SOURCE = (Path(__file__).parent / "programs" / "libraries.cu").read_text(encoding="utf-8")


def kernel(name: str) -> Callable[..., Any]:
    return loom._compile_kernel(SOURCE, name)


@pytest.mark.long
@pytest.mark.parametrize("length", [256, 300])
def test_selective_scan(length: int) -> None:
    torch.manual_seed(0)
    a, b = torch.rand(3, length), torch.randn(3, length)
    out = torch.zeros(3, length, device="loom")
    kernel("selective_scan")((3,), (32,), (a.to("loom"), b.to("loom"), out, length), shared_mem=4096)
    h, steps = torch.zeros(3), []
    for t in range(length):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    torch.testing.assert_close(out.cpu(), torch.stack(steps, 1))


@pytest.mark.long
@pytest.mark.parametrize("width", [2, 4])
def test_causal_convolution(width: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 5, 512), torch.randn(5, width)
    out = torch.zeros(2, 5, 512, device="loom")
    given = (x.to("loom"), weight.to("loom"), out, 5, 512)
    kernel(f"causal_convolution<{width}>")((10,), (64,), given)
    padded = torch.nn.functional.pad(x, (width - 1, 0))
    expected = torch.nn.functional.conv1d(padded, weight[:, None], groups=5)
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.long
def test_rasteriser_of_tiles() -> None:
    torch.manual_seed(0)
    count, width, height = 400, 40, 24
    centers = torch.rand(count, 2) * torch.tensor([float(width), float(height)])
    colors, widths = torch.rand(count, 4), torch.rand(count) * 3 + 1
    image = torch.zeros(height, width, 4, device="loom")
    given = (centers.to("loom"), colors.to("loom"), widths.to("loom"), image, count, width, height)
    kernel("rasterise")((3, 2), (16, 16), given)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    through, sums = torch.ones(height, width), torch.zeros(height, width, 3)
    for center, color, scale in zip(centers, colors, widths, strict=True):
        away = (center[0] - x) ** 2 + (center[1] - y) ** 2
        alpha = (color[3] * (-away / (2 * scale * scale)).exp()).clamp(max=0.99)
        alpha = torch.where((alpha < 1 / 255) | (through < 1e-4), 0.0, alpha)
        sums += color[:3] * (alpha * through)[..., None]
        through = through * (1 - alpha)
    torch.testing.assert_close(image.cpu(), torch.cat([sums, through[..., None]], 2), atol=1e-4, rtol=1e-3)


@pytest.mark.long
def test_reductions_and_prefix_sums() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 500), torch.zeros(4, 2, device="loom")
    kernel("reductions")((4,), (128,), (x.to("loom"), y, 500))
    parts = torch.nn.functional.pad(x, (0, 12)).view(4, 4, 128).sum(1)
    torch.testing.assert_close(y.cpu(), torch.stack([x.sum(1), parts[:, :32].amax(1)], 1))
    z = torch.randint(-9, 9, (2, 192), dtype=torch.int32)
    sums = torch.zeros(2, 192, dtype=torch.int32, device="loom")
    kernel("prefix_sums")((2,), (64,), (z.to("loom"), sums))
    assert torch.equal(sums.cpu(), (z.cumsum(1) - z).int())


@pytest.mark.long
def test_rows_of_a_block_that_a_warp_scans() -> None:
    x, y = torch.arange(128.0), torch.zeros(128, device="loom")
    kernel("sums_behind")((1,), (128,), (x.to("loom"), y))
    assert torch.equal(y.cpu(), x.sum() - x.cumsum(0))


# --- what cub does in a block and in a warp ---

BLOCKS = (Path(__file__).parent / "programs" / "cub_blocks.cu").read_text(encoding="utf-8")
THREADS, ITEMS, COUNT = 64, 3, 192


def run_block(name: str, *tensors: torch.Tensor) -> None:
    loom._compile_kernel(BLOCKS, name)((1,), (THREADS,), tensors)


def ints(*shape: int, low: int = -50, high: int = 50) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(low, high, shape, dtype=torch.int32)


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype, device="loom")


@pytest.mark.long
def test_block_scans_with_initial_values_and_callbacks() -> None:
    x, out = ints(COUNT), zeros(6, COUNT)
    run_block("scans", x.to("loom"), out)
    got = out.cpu()
    sums = x.cumsum(0)
    assert torch.equal(got[0], sums.int())
    assert torch.equal(got[1], (sums - x + 1000).int())
    before = torch.cat([torch.tensor([-5], dtype=torch.int32), x[:-1]])
    assert torch.equal(got[2], before.cummax(0).values)
    assert torch.equal(got[3], x.cummax(0).values)
    firsts = x.view(THREADS, ITEMS)[:, 0]
    results = got[4].view(THREADS, ITEMS)
    assert torch.equal(results[:, 0], (firsts.cumsum(0) - firsts).int())
    assert (results[:, 1] == firsts.sum()).all()
    assert torch.equal(results[:, 2], results[:, 0] + 1000 + int(x.sum()))
    assert got[5, 0] == 1000 + int(x.sum()) + int(firsts.sum())


@pytest.mark.long
def test_scans_of_an_operator_that_does_not_commute() -> None:
    x, out = ints(THREADS, 2, low=-1, high=2), zeros(2, THREADS, 2)
    run_block("compositions", x.to("loom"), out)

    def composed(rows: list[list[int]]) -> torch.Tensor:
        results = [rows[0]]
        for a, b in rows[1:]:
            results.append([results[-1][0] * a, a * results[-1][1] + b])
        return torch.tensor(results, dtype=torch.int32)

    rows = x.tolist()
    assert torch.equal(out[0].cpu(), composed(rows))
    assert torch.equal(out[1].cpu(), torch.cat([composed(rows[:32]), composed(rows[32:])]))


@pytest.mark.long
def test_block_radix_sorts() -> None:
    torch.manual_seed(0)
    keys = torch.randint(-20, 20, (COUNT,)).float()
    out, places = zeros(4, COUNT, dtype=torch.float32), zeros(2, COUNT)
    run_block("radix_sorts", keys.to("loom"), out, places)
    up, down = torch.sort(keys, stable=True), torch.sort(keys, stable=True, descending=True)
    assert torch.equal(out.cpu(), torch.stack([up.values, down.values, up.values, down.values]))
    assert torch.equal(places.cpu(), torch.stack([up.indices, down.indices]).int())


@pytest.mark.long
def test_block_and_warp_sorts_by_operators_and_bits() -> None:
    keys, out = ints(COUNT, low=0, high=500), zeros(4, COUNT)
    run_block("other_sorts", keys.to("loom"), out)
    got = out.cpu()
    by_bits = keys[torch.sort(keys % 16, stable=True).indices]
    assert torch.equal(got[0], by_bits)
    assert torch.equal(got[1, :100], keys[:100].sort().values)
    assert (got[1, 100:] == 1 << 30).all()
    assert torch.equal(got[2], keys.view(2, -1).sort(1).values.flatten())
    assert torch.equal(got[3], by_bits)


@pytest.mark.long
def test_block_neighbors() -> None:
    x, out = ints(COUNT, low=0, high=3), zeros(7, COUNT)
    run_block("neighbors", x.to("loom"), out)
    got, differ = out.cpu(), (x[1:] != x[:-1]).int()
    yes, no = torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    assert torch.equal(got[0], torch.cat([yes, differ]))
    assert torch.equal(got[1], torch.cat([no, differ]))
    assert torch.equal(got[2], torch.cat([differ, no]))
    assert torch.equal(got[3], torch.cat([x[:1], x[1:] - x[:-1]]))
    assert torch.equal(got[4], torch.cat([x[:-1] - x[1:], x[-1:] - 100]))
    assert torch.equal(got[5], torch.cat([77 * yes, x[:-1]]))
    rotated = got[6].view(THREADS, ITEMS)
    assert torch.equal(rotated[:, 0], x.view(THREADS, ITEMS)[:, 0].roll(-5))
    assert (rotated[:, 1] == x[-1]).all()


@pytest.mark.long
def test_block_histogram() -> None:
    x, counts = ints(COUNT, low=0, high=8).to(torch.uint8), zeros(8)
    run_block("histogram", x.to("loom"), counts)
    assert torch.equal(counts.cpu(), torch.bincount(x, minlength=8).int())


@pytest.mark.long
def test_warp_reductions_and_scans() -> None:
    x = ints(THREADS)
    flags, out = (ints(THREADS, low=0, high=4) == 0).int(), zeros(8, THREADS)
    run_block("warps", x.to("loom"), flags.to("loom"), out)
    got, halves = out.cpu(), x.view(4, 16)
    assert torch.equal(got[0].view(2, 32)[:, 0], x.view(2, 32).sum(1).int())
    assert torch.equal(got[1].view(4, 16)[:, 0], halves[:, :5].amax(1))
    heads = [t for t in range(THREADS) if t % 32 == 0 or flags[t]]
    for first, last in zip(heads, [*heads[1:], THREADS], strict=True):
        assert got[2, first] == x[first:last].sum()
    heads = [t for t in range(THREADS) if t % 32 == 0 or flags[t - 1]]
    for first, last in zip(heads, [*heads[1:], THREADS], strict=True):
        assert got[3, first] == x[first:last].sum()
    assert torch.equal(got[4].view(4, 16), (halves.cumsum(1) - halves).int())
    assert torch.equal(got[5].view(4, 16), halves.sum(1, keepdim=True).int().expand(4, 16))
    assert torch.equal(got[6].view(4, 16), halves.cummax(1).values)
    assert torch.equal(got[7].view(4, 16), halves[:, 3:4].expand(4, 16))


@pytest.mark.long
def test_exchanges_and_loads() -> None:
    x, out = ints(COUNT), zeros(4, COUNT)
    run_block("exchanges", x.to("loom"), out)
    some = torch.cat([x[:100], torch.full((92,), -1, dtype=torch.int32)])
    assert torch.equal(out.cpu(), torch.stack([x, x.flip(0), x, some]))


@pytest.mark.long
def test_types() -> None:
    out = zeros(5, 4, dtype=torch.float64)
    run_block("types", out)
    kinds = torch.float32, torch.float16, torch.bfloat16, torch.int16, torch.float8_e5m2
    for row, dtype in zip(out.tolist(), kinds, strict=True):
        known = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        assert row == [known.max, known.min, 1, 3 if dtype.is_floating_point else 1]


@pytest.mark.long
def test_items_of_a_thread() -> None:
    out = zeros(THREADS, 8)
    run_block("items", out)
    for thread, row in enumerate(out.tolist()):
        lane, same = thread % 32, 0x11111111 << thread % 4
        bits = ~0 & ~0xFF0 | ((1 << lane) - 1 & 0xFF) << 4
        expected = [thread + 9, thread + 109, thread + 10, thread + 6, min(max(thread - 1, 0), 3)]
        words = torch.tensor([bits, same + 1]).to(torch.int32).tolist()
        assert row == [*expected, max(thread, 4), *words], thread


# --- cub's functions over whole arrays ---

N = 500


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = library_of("cub_device", tmp_path_factory.mktemp("cub"))
    for name in ("reductions", "scans", "selections", "sorts", "segments_and_histograms"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def call(program: ctypes.CDLL, name: str, *given: torch.Tensor | int | None) -> None:
    torch.accelerator.synchronize()
    values = [pointer(value) if isinstance(value, torch.Tensor) else value for value in given]
    assert getattr(program, name)(*values) is None
    torch.accelerator.synchronize()


@pytest.mark.long
def test_device_reductions(program: ctypes.CDLL) -> None:
    x, out = ints(N, low=1, high=50), zeros(9, dtype=torch.int64)
    call(program, "reductions", x.to("loom"), N, out, None)
    x = x.long()
    product = 3
    for value in x.tolist():
        product = product * value % 2**64
    product -= 2**64 if product >= 2**63 else 0
    least = int((x == x.min()).nonzero()[0])
    expected = [x.sum(), x.max(), x.min(), product, least, x.min(), (x * x).sum(), N * (N - 1) // 2, 5 * N]
    assert out.cpu().tolist() == [int(value) for value in expected]


@pytest.mark.long
def test_device_scans(program: ctypes.CDLL) -> None:
    x, keys, out = ints(N), ints(N, low=0, high=3), zeros(6, N)
    call(program, "scans", x.to("loom"), keys.to("loom"), N, out, None)
    sums = x.cumsum(0)
    largest = torch.cat([torch.tensor([4], dtype=torch.int32), x[:-1]]).cummax(0).values
    by_key = torch.cat([x[run].cumsum(0) for run in runs(keys)])
    expected = torch.stack([sums, sums - x, largest, sums, by_key, by_key - x + 7])
    assert torch.equal(out.cpu(), expected.int())


@pytest.mark.long
def test_device_selections(program: ctypes.CDLL) -> None:
    x, keys = ints(N), ints(N, low=0, high=3)
    out, counts, of_runs = zeros(4, N), zeros(4), zeros(3, N)
    call(program, "selections", x.to("loom"), keys.to("loom"), N, out, counts, of_runs)
    is_odd, places = x % 2 != 0, runs(keys)
    firsts = torch.stack([x[run[0]] for run in places])
    expected = [x[keys != 0], x[is_odd], firsts, torch.cat([x[is_odd], x[~is_odd].flip(0)])]
    for row, wanted in zip(out.cpu(), expected, strict=True):
        assert torch.equal(row[: len(wanted)], wanted)
    assert counts.cpu().tolist() == [
        int((keys != 0).sum()),
        int(is_odd.sum()),
        len(places),
        int(is_odd.sum()),
    ]
    wanted_runs = [[keys[run[0]], len(run), x[run].sum()] for run in places]
    assert torch.equal(of_runs.cpu()[:, : len(places)], torch.tensor(wanted_runs, dtype=torch.int32).T)


@pytest.mark.long
def test_device_sorts(program: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    x, whole = torch.randint(-40, 40, (N,)).float(), ints(N, low=0, high=5000)
    offsets = torch.tensor([0, 7, 7, 300, N], dtype=torch.int32)
    out, by_bits, places = zeros(4, N, dtype=torch.float32), zeros(N), zeros(N, dtype=torch.int64)
    call(program, "sorts", x.to("loom"), whole.to("loom"), offsets.to("loom"), 4, N, out, by_bits, places)
    up, down = torch.sort(x, stable=True), torch.sort(x, stable=True, descending=True)
    segments = torch.cat([part.sort().values for part in x.split(offsets.diff().tolist())])
    assert torch.equal(out.cpu(), torch.stack([up.values, down.values, segments, up.values]))
    assert torch.equal(by_bits.cpu(), whole[torch.sort(whole // 16 % 16, stable=True).indices])
    assert torch.equal(places.cpu(), up.indices)


@pytest.mark.long
def test_device_segments_and_histograms(program: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    x, offsets = torch.randn(N), torch.tensor([0, 7, 300, N], dtype=torch.int32)
    sums, largest = zeros(3, dtype=torch.float32), zeros(3, dtype=torch.float32)
    even, levels, counts = zeros(8), torch.tensor([-1.0, 0.0, 0.5, 9.0]), zeros(3)
    own = (x.to("loom"), offsets.to("loom"), 3, N, sums, largest, even, levels.to("loom"), counts)
    call(program, "segments_and_histograms", *own)
    parts = x.split(offsets.diff().tolist())
    torch.testing.assert_close(sums.cpu(), torch.stack([part.sum() for part in parts]))
    assert torch.equal(largest.cpu(), torch.stack([part.max() for part in parts]))
    inside = x[(x >= -2) & (x < 2)]
    assert torch.equal(even.cpu(), torch.histc(inside, 8, -2, 2).int())
    places = torch.bucketize(x, levels, right=True)
    assert torch.equal(counts.cpu(), torch.bincount(places, minlength=5)[1:4].int())

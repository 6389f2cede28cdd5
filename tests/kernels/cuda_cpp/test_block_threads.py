"""Barriers, warps, cooperative groups, shared memory: against what torch or plain Python works out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "threads.cu").read_text(encoding="utf-8")
Kernel = Callable[..., Any]


def kernel(name: str) -> Kernel:
    compiled: Kernel = loom._compile_kernel(SOURCE, name)
    return compiled


@pytest.mark.long
def test_dynamic_shared_memory_and_barriers() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(50, 300, device="loom"), torch.empty(50, device="loom")
    kernel("row_sums")((50,), (128,), (x, y, 300), shared_mem=128 * 4)
    torch.testing.assert_close(y, x.sum(1))


@pytest.mark.long
def test_softmax_by_shuffles() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 32, device="loom")
    y = torch.empty_like(x)
    kernel("softmax_of_warps")((8,), (256,), (x, y))
    torch.testing.assert_close(y, x.softmax(1))


@pytest.mark.long
@pytest.mark.parametrize("tile", [8, 32])
def test_tiled_product(tile: int) -> None:
    torch.manual_seed(0)
    n = 50
    a, b, c = (torch.randn(n, n, device="loom") for _ in range(3))
    blocks = -(-n // tile)
    kernel(f"product<{tile}>")((blocks, blocks), (tile, tile), (a, b, c, n))
    torch.testing.assert_close(c, a @ b)


@pytest.mark.long
def test_histogram_by_shared_atomics() -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 37, (10000,), device="loom", dtype=torch.int32)
    counts = torch.zeros(37, device="loom", dtype=torch.int32)
    kernel("histogram")((7,), (96,), (x, counts, 10000, 37), shared_mem=37 * 4)
    assert torch.equal(counts.cpu(), torch.bincount(x.cpu(), minlength=37).int())


def by_warps(x: list[int], change: Callable[[list[int], int], int]) -> list[int]:
    """For each thread, what `change` makes of its warp's values and its lane."""
    return [change(x[t // 32 * 32 :][:32], t % 32) for t in range(len(x))]


def signed(bits: int) -> int:
    return bits - 2**32 if bits >= 2**31 else bits


@pytest.mark.long
def test_collectives() -> None:
    torch.manual_seed(0)
    x = torch.randint(-50, 50, (64,), dtype=torch.int32)
    y = torch.zeros(18, 64, dtype=torch.int32, device="loom")
    kernel("collectives")((1,), (64,), (x.to("loom"), y))
    own: list[int] = x.tolist()
    found = y.cpu().tolist()

    def votes(values: list[int], lane: int) -> int:
        return signed(sum(1 << i for i, value in enumerate(values) if value > 0))

    def xor(values: list[int], lane: int) -> int:
        all_bits = 0
        for value in values:
            all_bits ^= value & 0xFFFFFFFF
        return signed(all_bits)

    expected = [
        [sum(value > 0 for value in own)] * 64,
        [1] * 64,
        [0] * 64,
        by_warps(own, lambda w, i: w[i // 8 * 8 + 3]),
        by_warps(own, lambda w, i: w[i - 2] if i % 16 >= 2 else w[i]),
        by_warps(own, lambda w, i: w[i + 3] if i % 8 < 5 else w[i]),
        by_warps(own, lambda w, i: w[i ^ 5]),
        by_warps(own, votes),
        [0] * 64,
        [1] * 64,
        by_warps(own, lambda w, i: signed(sum(1 << k for k in range(32) if w[k] & 3 == w[i] & 3))),
        by_warps(own, lambda w, _: sum(w)),
        by_warps(own, lambda w, _: min(w)),
        by_warps(own, lambda w, _: max(w)),
        by_warps(own, xor),
        by_warps(own, lambda w, i: w[i ^ 1] if i < 16 else w[i ^ 2]),
        by_warps(own, lambda w, i: votes(w, i) if w[i] > 0 else 0),
        [1] * 64,
    ]
    assert found == expected


@pytest.mark.long
def test_collectives_of_ptx() -> None:
    torch.manual_seed(0)
    # The second warp has 16 lanes.
    x = torch.randint(-50, 50, (48,), dtype=torch.int32)
    y = torch.zeros(15, 48, dtype=torch.uint32, device="loom")
    kernel("collectives_of_ptx")((1,), (48,), (x.to("loom"), y))
    own: list[int] = x.tolist()
    found = [[signed(bits) for bits in row] for row in y.cpu().to(torch.int64).tolist()]

    def bits(lanes: Iterable[int]) -> int:
        return signed(sum(1 << lane for lane in lanes))

    def voters(values: list[int]) -> int:
        return bits(i for i, value in enumerate(values) if value > 0)

    def xor(values: list[int]) -> int:
        return reduce(operator.xor, values)

    # A lane outside of the segment or the warp: its own value, and 1000 for the predicate of the former.
    expected = [
        by_warps(own, lambda w, i: w[i ^ 5]),
        by_warps(own, lambda w, i: w[i - 2] if i % 16 >= 2 else w[i] + 1000),
        by_warps(own, lambda w, i: w[i + 3] if i % 8 < 5 else w[i] + 1000),
        by_warps(own, lambda w, i: w[i // 8 * 8 + 3]),
        by_warps(own, lambda w, i: w[i] + 1000),
        by_warps(own, lambda w, _: voters(w)),
        [1] * 48,
        [1] * 48,
        [1] * 48,
        [0] * 48,
        by_warps(own, lambda w, i: bits(k for k in range(len(w)) if w[k] & 3 == w[i] & 3)),
        [7] * 48,
        by_warps(own, lambda w, _: min(w)),
        by_warps(own, lambda w, _: xor(w)),
        by_warps(own, lambda w, i: voters(w) if w[i] > 0 else 0),
    ]
    assert found == expected


@pytest.mark.long
def test_cooperative_groups() -> None:
    torch.manual_seed(0)
    x = torch.randint(-5, 5, (64,), dtype=torch.int32)
    y = torch.zeros(9, 64, dtype=torch.int32, device="loom")
    kernel("groups")((1,), (64,), (x.to("loom"), y))
    own: list[int] = x.tolist()
    found = y.cpu().tolist()
    tiles = [own[t // 8 * 8 :][:8] for t in range(64)]
    assert found[0] == [t % 8 for t in range(64)]
    assert found[1] == [tile[2] for tile in tiles]
    assert found[2] == [sum(tile) for tile in tiles]
    assert found[3] == [sum(1 << i for i in range(8) if tile[i] > 0) for tile in tiles]
    assert found[4] == [t // 8 for t in range(64)]
    ranks = [sum(value > 0 for value in own[t // 32 * 32 : t]) if own[t] > 0 else -1 for t in range(64)]
    assert found[5] == ranks
    assert found[6][0] == sum(value > 0 for value in own)
    assert found[7] == [40 + t // 8 % 4 for t in range(64)]
    assert found[8][0] == 8


@pytest.mark.long
def test_threads_that_end_are_not_waited_for() -> None:
    y = torch.zeros(64, dtype=torch.int32, device="loom")
    kernel("early_exits")((1,), (64,), (y, 40))
    # Each adds its partner's number to its own; the second of the two may find the sum there.
    found = y[:40].cpu().tolist()
    assert all(39 in (found[t], found[39 - t]) for t in range(20))
    assert y[40:].sum().item() == 0


@pytest.mark.long
def test_what_all_read_before_the_first_thread_writes() -> None:
    values = torch.arange(64, dtype=torch.int32).flip(0)
    y = torch.zeros(4, 64, dtype=torch.int32, device="loom")
    kernel("reused_shared_memory")((1,), (64,), (values.to("loom"), y, 4))
    assert y.cpu().tolist() == [[63 + i] * 64 for i in range(4)]


@pytest.mark.long
def test_blocks_that_wait_and_blocks_that_do_not() -> None:
    y = torch.zeros(6, 32, dtype=torch.int32, device="loom")
    kernel("sometimes_waits")((6,), (32,), (y,))
    assert y.cpu().tolist() == [[block if block % 2 else -1] * 32 for block in range(6)]


@pytest.mark.long
def test_threads_that_never_meet_are_told() -> None:
    y = torch.zeros(32, dtype=torch.int32, device="loom")
    with pytest.raises(torch.AcceleratorError, match=r"never_meet.*16 of 32 are at __syncthreads\(\), 16 at"):
        kernel("never_meet")((1,), (32,), (y,))
    assert y.sum().item() == 0


@pytest.mark.long
def test_a_capture_keeps_the_kernel() -> None:
    x, y = torch.ones(2, 64, device="loom"), torch.zeros(2, device="loom")
    sums = kernel("row_sums")
    graph = loom.CUDAGraph()
    with loom.graph(graph):
        sums((2,), (32,), (x, y, 64), shared_mem=128)
    x.fill_(2)
    assert y.tolist() == [0, 0]
    graph.replay()
    assert y.tolist() == [128, 128]


@pytest.mark.long
def test_the_clock_is_the_devices() -> None:
    near = torch.zeros(1, dtype=torch.int32, device="loom")
    kernel("clocks")((1,), (1,), (near,))
    assert near.item() == 1

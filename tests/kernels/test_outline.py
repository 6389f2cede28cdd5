"""What kernels do, for the cost model, from Triton's IR."""

from __future__ import annotations

import pytest

from tests.kernels.launching import TEXTS
from torch_loom.chips import rates
from torch_loom.chips.chip import load
from torch_loom.chips.cost import launches
from torch_loom.chips.cost.launches import Launched, LaunchTime, Work
from torch_loom.kernels.outline import outline_of
from torch_loom.kernels.ttir import read


def launched(name: str, num_warps: int = 4, num_stages: int = 3) -> Launched:
    return Launched(
        outline_of(read((TEXTS / f"{name}.ttir").read_text(encoding="utf-8"))), num_warps, num_stages
    )


def work(name: str, grid: tuple[int, int, int], numbers: dict[int, int] | None = None) -> Work:
    return launches.work_of(launched(name).outline, grid, numbers or {})


def time(
    name: str, done: Work, footprint: tuple[float, float], chip: str = "h100", **more: int
) -> LaunchTime:
    described = load(chip)
    return launches.launch_time(launched(name, **more), done, footprint, rates.model(described), described)


def test_an_addition_moves_its_blocks() -> None:
    found = work("add", (10, 1, 1))
    assert (found.programs, found.read_bytes, found.written_bytes) == (10, 10 * 8192, 10 * 4096)
    assert found.turns == 2
    assert not found.products


@pytest.mark.parametrize(("depth", "turns"), [(64, 1), (512, 8), (4096, 64), (4097, 65)])
def test_a_product_has_as_many_tiles_as_its_loop_turns(depth: int, turns: int) -> None:
    # Of its sizes m, n and k only the last decides.
    assert launched("product").outline["numbers"] == [5]
    found = work("product", (8, 1, 1), {3: 512, 4: 512, 5: depth})
    assert found.products == pytest.approx({("float16", 128, 256, 64): 8 * turns})
    assert found.read_bytes == 8 * turns * 2 * (128 * 64 + 64 * 256)
    assert found.written_bytes == 8 * 2 * 128 * 256


def test_of_a_number_that_is_not_known_a_loop_turns_once() -> None:
    assert work("product", (8, 1, 1)).products == {("float16", 128, 256, 64): 8}


def test_a_large_addition_takes_as_long_as_its_memory() -> None:
    size = 2**27
    done = work("add", (size // 1024, 1, 1))
    found = time("add", done, (8.0 * size, 4.0 * size))
    assert found.moved_bytes == 12.0 * size
    rate = rates.rates(load("h100")).dram_bytes_per_ns
    assert found.total_ns == pytest.approx(12.0 * size / rate, rel=0.1)


def test_a_large_product_takes_as_long_as_its_flops() -> None:
    size = 8192
    done = work("product", ((size // 128) * (size // 256), 1, 1), dict.fromkeys((3, 4, 5), size))
    found = time("product", done, (4.0 * size * size, 2.0 * size * size), num_warps=8)
    ideal = 2.0 * size**3 / rates.rates(load("h100")).flops_per_ns["float16"]
    assert ideal < found.total_ns < 1.8 * ideal


def test_one_program_more_than_cores_takes_a_second_wave() -> None:
    cores = load("h100").num_cores
    sizes = dict.fromkeys((3, 4, 5), 8192)
    one, two = (
        time("product", work("product", (count, 1, 1), sizes), (1e6, 1e6)).compute_ns
        for count in (cores, cores + 1)
    )
    assert two == pytest.approx(2 * one)


def test_programs_that_share_a_core() -> None:
    chip = load("h100")
    assert launches.resident_programs(launched("add"), chip) == chip.max_threads_per_core // 128
    # 48 KiB of operands in two stages: two programs have 192 of 228 KiB.
    assert launches.resident_programs(launched("product", num_warps=8), chip) == 1
    assert launches.resident_programs(launched("product", num_warps=16, num_stages=2), chip) == 1


def test_what_waits_for_a_product_is_counted_besides() -> None:
    found = work("scored", (10, 1, 1))
    # Of two powers one does not wait; the sum and the store do.
    assert (found.slow, found.waiting_slow) == (10 * 2 * 256, 10 * 256)
    assert (found.operations, found.waiting) == (10 * 2 * 256, 10 * 2 * 256)
    assert work("product", (8, 1, 1)).waiting == 0


def test_a_program_that_is_alone_on_its_core_waits_for_its_products() -> None:
    sizes = dict.fromkeys((3, 4, 5), 8192)
    done = work("product", (132, 1, 1), sizes)
    alone = time("product", done, (1e6, 1e6), num_warps=32)
    assert alone.resident == 1
    waits = done._replace(operations=done.operations + 1e9, waiting=1e9)
    overlaps = time("product", waits._replace(waiting=0.0), (1e6, 1e6), num_warps=32).compute_ns
    behind = time("product", waits, (1e6, 1e6), num_warps=32).compute_ns
    clock = rates.rates(load("h100")).clock_ghz
    assert alone.compute_ns < overlaps < behind
    assert behind == pytest.approx(alone.compute_ns + 1e9 / 128 / 132 / clock, rel=0.1)


def test_what_a_core_keeps_it_reads_again_from_its_own_cache() -> None:
    done = work("add", (1024, 1, 1))
    again = done._replace(read_bytes=3 * done.read_bytes)
    near, far = (
        time("add", again._replace(programs=programs), (done.read_bytes, done.written_bytes)).memory_ns
        for programs in (1024, 8)
    )
    assert time("add", done, (done.read_bytes, done.written_bytes)).memory_ns < near < far

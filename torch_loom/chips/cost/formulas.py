"""The closed formulas of the cost model: nanoseconds of a kernel from a chip's rates and coefficients.

They use plain numbers and no memory, so that the device's clock can evaluate the same ones in C++.
Coefficients are relative to the chip (shares of its peaks, cycles of its cores), so that a curve fitted on
one chip says something of its relatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from torch_loom.chips.cost.records import Kernel

# Memory that may be paged out is copied through pieces of this size.
STAGED_BYTES = float(1 << 20)

# A reduction to one number stays on one core below this many elements.
ONE_CORE_ITEMS = 1 << 17

# How the latency of walking along one row grows with the width of its elements.
LANE_WIDTH_POWER = 0.75

# (rows, columns) of the output that one core computes at a time.
VECTOR_TILES = (
    *((128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128)),
    *((32, 32), (64, 32), (32, 64), (256, 128), (128, 256)),
)
MATRIX_TILES = (
    *((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128)),
    *((64, 256), (256, 64), (64, 32), (32, 64)),
)
# Kernels that add a bias come in larger tiles only, and split less.
MIN_EPILOGUE_TILE = 128 * 64
MIN_EPILOGUE_DEPTH = 1024
# Over how many cores the inner dimension of one tile may be split, and the least that each must get.
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
MIN_SPLIT_DEPTH = 64


class Rates(NamedTuple):
    """The figures of a chip that formulas need: flops and bytes per nanosecond, cycles per nanosecond."""

    cores: int
    clock_ghz: float
    dram_bytes_per_ns: float
    cache_bytes_per_ns: float
    cache_bytes: float
    link_bytes_per_ns: float
    flops_per_ns: Mapping[str, float]
    launch_ns: float
    # Shares of the cache up to which a kernel's footprint stays in it, and from which nothing does.
    cache_full_share: float
    cache_none_share: float
    cache_write_cost: float


class Time(NamedTuple):
    """Nanoseconds of a kernel and its parts; parts overlap and may add up to more than the total."""

    total_ns: float
    compute_ns: float
    memory_ns: float
    launch_ns: float


Coefficients = Mapping[str, float]
Formula = Callable[[Kernel, Coefficients, Rates], Time]


def overlapped(first: float, second: float) -> float:
    """Return the time of two activities that overlap: the fourth root of their fourth powers' sum."""
    longer, shorter = (first, second) if first > second else (second, first)
    if longer <= 0.0:
        return 0.0
    square = (shorter / longer) ** 2
    return longer * math.sqrt(math.sqrt(1.0 + square * square))


def memory_ns(kernel: Kernel, rates: Rates, share: float) -> float:
    """Return how long the kernel's bytes take: from the cache as far as they fit, else from DRAM."""
    moved = kernel.read_bytes + kernel.written_bytes
    full, none = rates.cache_bytes * rates.cache_full_share, rates.cache_bytes * rates.cache_none_share
    cached = 1.0 if kernel.footprint_bytes <= full else 0.0
    if full < kernel.footprint_bytes < none:
        cached = (none - kernel.footprint_bytes) / (none - full)
    from_cache = (
        kernel.read_bytes + kernel.written_bytes * rates.cache_write_cost
    ) / rates.cache_bytes_per_ns
    return (cached * from_cache + (1.0 - cached) * moved / rates.dram_bytes_per_ns) / share


def stream(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Elements that are independent of each other: bytes, or instructions per element."""
    launch = (rates.launch_ns + c["start_ns"]) * kernel.launches
    memory = memory_ns(kernel, rates, c["memory_share"])
    compute = kernel.items * c["item_cycles"] / (rates.cores * rates.clock_ghz)
    return Time(launch + overlapped(memory, compute), compute, memory, launch)


def rows(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """A core works on a row at a time; one row takes the latency of its columns at least."""
    narrow = kernel.item_bytes <= 2
    column_cycles = c["column_cycles_16"] if narrow else c["column_cycles_32"]
    lane_cycles = c["lane_cycles"] * (kernel.item_bytes / 4.0) ** LANE_WIDTH_POWER
    launch = (rates.launch_ns + c["start_ns"]) * kernel.launches
    memory = memory_ns(kernel, rates, c["memory_share"])
    cycles = kernel.rows * (c["row_cycles"] + kernel.columns * column_cycles)
    compute = cycles / (rates.cores * rates.clock_ghz)
    compute = overlapped(compute, kernel.columns * lane_cycles / rates.clock_ghz)
    return Time(launch + overlapped(memory, compute), compute, memory, launch)


def reduction(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Everything to one number: on one core while that is small, else in two steps over all."""
    launch = rates.launch_ns + c["start_ns"]
    memory = memory_ns(kernel, rates, c["memory_share"])
    if kernel.items >= ONE_CORE_ITEMS:
        launch += c["grid_ns"]
        compute = kernel.read_bytes * c["byte_cycles"] / (rates.cores * rates.clock_ghz)
        return Time(launch + overlapped(memory, compute), compute, memory, launch)
    lane_cycles = c["lane_cycles"] * (kernel.item_bytes / 4.0) ** LANE_WIDTH_POWER
    compute = kernel.items * lane_cycles / rates.clock_ghz
    return Time(launch + compute, compute, memory, launch)


@lru_cache(maxsize=1 << 14)
def _plans(
    m: int, n: int, k: int, batch: int, cores: int, epilogue: bool, vector: bool
) -> tuple[tuple[float, float, tuple[tuple[float, float, float, int], ...]], ...]:
    """Return area and edge of each tile of a product, and waves, depth, busy share and splits of each way to
    split it over the cores."""
    found = []
    least_depth = MIN_EPILOGUE_DEPTH if epilogue else MIN_SPLIT_DEPTH
    for tile_m, tile_n in VECTOR_TILES if vector else MATRIX_TILES:
        area = tile_m * tile_n
        if epilogue and area < MIN_EPILOGUE_TILE:
            continue
        ways = []
        count = -(-m // tile_m) * -(-n // tile_n) * batch
        for splits in SPLITS:
            if splits > 1 and (k < least_depth * splits or count * splits > 2 * cores):
                break
            waves, depth = -(-count * splits // cores), -(-k // splits)
            busy = min(cores, count * splits) / cores
            ways.append((float(waves), float(depth), busy, splits))
        found.append((float(area), float(tile_m + tile_n), tuple(ways)))
    return tuple(found)


def _tiled(kernel: Kernel, c: Coefficients, rates: Rates, vector: bool, memory: float) -> float:
    """Return the shortest time of a matrix product over tilings and splits."""
    flop_ns = 2.0 * rates.cores / (rates.flops_per_ns[kernel.dtype] * c["flop_share"])
    edge_ns = c["edge_cycles"] / rates.clock_ghz
    store_ns = kernel.item_bytes * c["store_cycles"] / rates.clock_ghz
    slow = 1.0 if kernel.aligned else c["unaligned"]
    fill, derate, busy_share = c["fill"], c["derate"], c["busy_share"]
    pause = rates.launch_ns + c["derate_ns"]
    outputs = kernel.m * kernel.n * kernel.batch
    best = math.inf
    plans = _plans(kernel.m, kernel.n, kernel.k, kernel.batch, rates.cores, kernel.epilogue, vector)
    for area, edge, ways in plans:
        step = overlapped(area * flop_ns, edge * edge_ns) * slow
        for waves, depth, busy, splits in ways:
            compute = waves * ((depth + fill) * step + area * store_ns)
            if compute >= best:  # what follows only adds to it
                continue
            # Dense work without pause draws more power than the clock's highest rate allows for.
            share = compute / (compute + pause)
            compute *= 1.0 + derate * share * share
            # A few cores cannot ask for all that the memory can give.
            total = overlapped(compute, memory * max(1.0, busy_share / busy))
            if splits > 1:
                partial = outputs * (4.0 * (splits + 1) + kernel.item_bytes)
                total += c["split_ns"] + partial / rates.cache_bytes_per_ns
            best = min(best, total)
    return best


def matmul(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Matrix products on tensor cores: tiles in waves over the cores, the inner dimension split where few."""
    launch = rates.launch_ns + c["start_ns"]
    # Matrix units are fed from the cache no faster than from DRAM.
    memory = (kernel.read_bytes + kernel.written_bytes) / (rates.dram_bytes_per_ns * c["memory_share"])
    compute = _tiled(kernel, c, rates, False, memory)
    return Time(launch + compute, compute, memory, launch)


def vector_matmul(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Matrix products on the vector units, as float32 without TF32."""
    launch = rates.launch_ns + c["start_ns"]
    memory = memory_ns(kernel, rates, c["memory_share"])
    compute = _tiled(kernel, c, rates, True, memory)
    return Time(launch + compute, compute, memory, launch)


def attention(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Fused attention: blocks of 64 queries walk over all keys; ``items`` is the unmasked share."""
    launch = rates.launch_ns + c["start_ns"]
    block = 64
    keys = math.ceil(kernel.n / block) * block
    core_flops = rates.flops_per_ns[kernel.dtype] * c["flop_share"] / rates.cores
    pairs = block * keys * kernel.items
    one = pairs * kernel.k * c["products"] * 2.0 / core_flops
    one += (pairs * c["pair_cycles"] + c["block_cycles"]) / rates.clock_ghz
    blocks = kernel.batch * math.ceil(kernel.m / block)
    compute = max(blocks / rates.cores, c["lone"]) * one
    memory = memory_ns(kernel, rates, c["memory_share"])
    return Time(launch + overlapped(compute, memory), compute, memory, launch)


def link(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Copies between memories: a latency, and bytes over the link."""
    size = kernel.read_bytes + kernel.written_bytes
    start = c["start_ns"]
    if c["joined"] > 0.5:
        moved = size / (rates.link_bytes_per_ns * c["link_share"])
        return Time(math.hypot(start, moved), 0.0, moved, start)
    # The first piece is copied to page-locked memory before the link has anything to do.
    size += min(size, STAGED_BYTES) * c["staging"]
    moved = size / (rates.link_bytes_per_ns * c["link_share"])
    return Time(start + moved, 0.0, moved, start)


FORMULAS: Mapping[str, Formula] = {
    "stream": stream,
    "rows": rows,
    "reduction": reduction,
    "matmul": matmul,
    "vector_matmul": vector_matmul,
    "attention": attention,
    "link": link,
}

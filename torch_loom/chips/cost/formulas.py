"""The closed formulas of the cost model: nanoseconds of a kernel from a chip's rates and coefficients.

They use plain numbers and no memory, so that the device's clock can evaluate the same ones in C++.
Coefficients are relative to the chip (shares of its peaks, cycles of its cores), so that a curve fitted on
one chip says something of its relatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
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
# Kernels that add a bias come in larger tiles only, and split less; on vector units if `least_tile` says so.
MIN_EPILOGUE_TILE = 128 * 64
MIN_EPILOGUE_DEPTH = 1024
# Over how many cores the inner dimension of one tile may be split, and the least that each must get.
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
MIN_SPLIT_DEPTH = 64
# Gradients of weights have small results and the deepest inner dimension: all positions of a batch.
DEEP_SPLITS = (*SPLITS, 24, 32, 48, 64, 96, 128, 192)
# Winograd's algorithms for windows of 3x3: 16 multiplications make a tile of 2x2 outputs in one kernel, 36
# one of 4x4 in a batch of products between two transformations. The former works in blocks of such tiles.
FUSED_TILE = 32
FUSED_PRODUCTS, BATCHED_PRODUCTS = 16, 36
# Transformations of source, weights and result, beside the products.
TRANSFORMATIONS = 3
ALGORITHMS = IMPLICIT, FUSED, BATCHED = "implicit", "winograd fused", "winograd batched"


# Of the cache that all cores share, what one reads a cycle at most: its path there is so wide. All 108 of an
# A100 get 5120 (NVIDIA A100 Tensor Core GPU Architecture white paper).
CACHE_BYTES_PER_CYCLE = 64.0


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
    # Of the clock, by dtype, at which power lets dense products go on; 1 where a dtype is not named.
    sustained: Mapping[str, float] = MappingProxyType({})

    @property
    def max_cache_bytes_per_ns(self) -> float:
        """What all cores together can read of the cache; no limit where their number is not known."""
        return self.cores * self.clock_ghz * CACHE_BYTES_PER_CYCLE if self.cores > 1 else math.inf


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


def twice(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """What is read twice, for statistics first: of the second time only ``again`` comes from memory.

    Of ``columns`` elements each core does all that belong to one result.
    """
    launch = (rates.launch_ns + c["start_ns"]) * kernel.launches
    memory = memory_ns(kernel, rates, c["memory_share"])
    moved = kernel.read_bytes + kernel.written_bytes
    memory *= (moved + kernel.read_bytes * c["again"]) / moved
    compute = kernel.items * c["item_cycles"] / (rates.cores * rates.clock_ghz)
    compute = overlapped(compute, kernel.columns * c["lane_cycles"] / rates.clock_ghz)
    return Time(launch + overlapped(memory, compute), compute, memory, launch)


def rows(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """A core works on a row at a time; one row takes the latency of its columns at least."""
    narrow = kernel.item_bytes <= 2
    column_cycles = c["column_cycles_16"] if narrow else c["column_cycles_32"]
    lane_cycles = c["lane_cycles"] * (kernel.item_bytes / 4.0) ** LANE_WIDTH_POWER
    launch = (rates.launch_ns + c["start_ns"]) * kernel.launches
    memory = memory_ns(kernel, rates, c["memory_share"])
    again = kernel.columns * kernel.item_bytes / c["kept_bytes"] - 1.0
    if again > 0.0:
        # Rows that the memory of a core does not keep are read once more.
        memory *= 1.0 + min(again, 1.0) * kernel.read_bytes / (kernel.read_bytes + kernel.written_bytes)
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


class Plan(NamedTuple):
    """Ways to cut products into tiles: which tiles, over how many cores the depth may be split.

    ``least_depth`` and ``least_area`` bound the parts of a split and the tiles.
    """

    tiles: tuple[tuple[int, int], ...]
    splits: tuple[int, ...] = SPLITS
    least_depth: int = MIN_SPLIT_DEPTH
    least_area: float = 0.0


PLANS: Mapping[str, Plan] = {
    "matrix": Plan(MATRIX_TILES),
    "matrix, bias": Plan(MATRIX_TILES, least_depth=MIN_EPILOGUE_DEPTH, least_area=MIN_EPILOGUE_TILE),
    "matrix, deep": Plan(MATRIX_TILES, DEEP_SPLITS),
    "vector": Plan(VECTOR_TILES),
    "vector, bias": Plan(VECTOR_TILES, least_depth=MIN_EPILOGUE_DEPTH, least_area=MIN_EPILOGUE_TILE),
    "vector, deep": Plan(VECTOR_TILES, DEEP_SPLITS),
    "vector, whole": Plan(VECTOR_TILES, (1,)),
}


@lru_cache(maxsize=1 << 10)
def _tiles(
    name: str, least_area: float, flop_ns: float, edge_ns: float, store_ns: float, slow: float
) -> tuple[tuple[int, int, float, float], ...]:
    """Return rows and columns of each tile, what one step of its depth takes, and storing it."""
    plan = PLANS[name]
    return tuple(
        (
            *(tile_m, tile_n),
            overlapped(tile_m * tile_n * flop_ns, (tile_m + tile_n) * edge_ns) * slow,
            tile_m * tile_n * store_ns,
        )
        for tile_m, tile_n in plan.tiles
        if tile_m * tile_n >= max(plan.least_area, least_area)
    )


def slower(kernel: Kernel, c: Coefficients) -> float:
    """Return how much slower a product is whose rows do not begin at multiples of 16 bytes."""
    alignment = kernel.alignment
    if alignment >= 16:
        return 1.0
    return c.get(f"unaligned_{alignment}", 1.0)


def _tiled(
    kernel: Kernel, c: Coefficients, rates: Rates, plan: str, memory: float, least_area: float = 0.0
) -> float:
    """Return the shortest time of a matrix product over tilings and splits."""
    flop_ns = 2.0 * rates.cores / (rates.flops_per_ns[kernel.dtype] * c["flop_share"])
    clock_ghz = rates.clock_ghz * rates.sustained.get(kernel.dtype, 1.0)
    edge_ns = c["edge_cycles"] / clock_ghz
    store_ns = kernel.item_bytes * c["store_cycles"] / clock_ghz
    fill, derate, busy_share = c["fill"], c["derate"], c["busy_share"]
    busy_outputs = c.get("busy_outputs", 0.0)
    pause = rates.launch_ns + c["derate_ns"]
    # Matrix units are so fast that what they wait for shows: their waiting overlaps less.
    is_matrix = plan.startswith("matrix")
    splitting, cores = PLANS[plan], rates.cores
    m, n, k, batch = kernel.m, kernel.n, kernel.k, kernel.batch
    best = math.inf
    for tile_m, tile_n, step, store in _tiles(
        plan, least_area, flop_ns, edge_ns, store_ns, slower(kernel, c)
    ):
        count = -(-m // tile_m) * -(-n // tile_n) * batch
        # A core with few outputs at work waits for each step.
        least = busy_outputs / (tile_m * tile_n)
        for splits in splitting.splits:
            if splits > 1 and (k < splitting.least_depth * splits or count * splits > 2 * cores):
                break
            parts = count * splits
            compute = max(-(-parts // cores), least) * ((-(-k // splits) + fill) * step + store)
            if compute >= best:  # what follows only adds to it
                continue
            # Dense work without pause draws more power than the clock's highest rate allows for.
            share = compute / (compute + pause)
            compute *= 1.0 + derate * share * share
            # A few cores, those that have a part, cannot ask for all that the memory can give.
            busy = min(cores, parts) / cores
            moving = memory * max(1.0, busy_share / busy)
            total = math.hypot(compute, moving) if is_matrix else overlapped(compute, moving)
            if splits > 1:
                partial = m * n * batch * (4.0 * (splits + 1) + kernel.item_bytes)
                total += c["split_ns"] + partial / rates.cache_bytes_per_ns
            best = min(best, total)
    return best


def dram_ns(kernel: Kernel, c: Coefficients, rates: Rates) -> float:
    """Return how long the kernel's bytes take from DRAM."""
    return (kernel.read_bytes + kernel.written_bytes) / (rates.dram_bytes_per_ns * c["memory_share"])


def walked(kernel: Kernel, c: Coefficients) -> float:
    """Return how much longer a product's bytes take by how its operands lie.

    Where both lie along the inner dimension, a tile's rows are short pieces of memory far from each other.
    """
    return 1.0 / c.get("inner_share", 1.0) if kernel.items else 1.0


def _product(
    kernel: Kernel, c: Coefficients, rates: Rates, plan: str, memory: float, least_area: float = 0.0
) -> Time:
    launch = rates.launch_ns + c["start_ns"]
    memory *= walked(kernel, c)
    compute = _tiled(kernel, c, rates, plan, memory, least_area)
    return Time(launch + compute, compute, memory, launch)


def matmul(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Matrix products on tensor cores: tiles in waves over the cores, the inner dimension split where few."""
    plan = "matrix, bias" if kernel.epilogue else "matrix"
    # Matrix units are fed from the cache no faster than from DRAM.
    return _product(kernel, c, rates, plan, dram_ns(kernel, c, rates))


def deep_matmul(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """The same with as many splits as it takes to give all cores work: gradients of weights."""
    return _product(kernel, c, rates, "matrix, deep", dram_ns(kernel, c, rates))


def vector_matmul(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Matrix products on the vector units, as float32 without TF32."""
    large = kernel.epilogue and c["least_tile"] >= MIN_EPILOGUE_TILE
    plan = "vector, bias" if large else "vector"
    return _product(kernel, c, rates, plan, memory_ns(kernel, rates, c["memory_share"]))


def batched_matmul(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Batches of products on the vector units: their depth is not split, small tiles may be missing."""
    memory = memory_ns(kernel, rates, c["memory_share"])
    return _product(kernel, c, rates, "vector, whole", memory, c["least_tile"])


def _algorithms(kernel: Kernel, c: Coefficients, rates: Rates, is_deep: bool) -> tuple[float, ...]:
    """Return what each of :data:`ALGORITHMS` takes, its first launch left out.

    Where the lowering counts no tiles, or the library has no such kernels, that is the first alone, else the
    others; gradients of weights have no fused one, and keep the first.
    """
    memory = memory_ns(kernel, rates, c["memory_share"])
    is_winograd = kernel.rows > 0 and kernel.batch == 1 and (is_deep or c["winograd"] > 0.5)
    implicit = math.inf
    if is_deep or not is_winograd:
        implicit = c["start_ns"] + _tiled(kernel, c, rates, "vector, deep" if is_deep else "vector", memory)
    if not is_winograd:
        return (implicit,)
    # The products that make all multiplications of Winograd's tiles; their operands are the transformed ones.
    if is_deep:
        channels, outputs, fused = -(-kernel.n // 9), kernel.m, math.inf
        products = kernel._replace(n=channels, k=kernel.columns, batch=BATCHED_PRODUCTS)
    else:
        channels, outputs = -(-kernel.k // 9), kernel.n
        products = kernel._replace(m=kernel.columns, k=channels, batch=BATCHED_PRODUCTS)
        flop_ns = 2.0 * rates.cores / rates.flops_per_ns[kernel.dtype]
        blocks = -(-kernel.rows // FUSED_TILE) * -(-outputs // FUSED_TILE)
        waves = max(float(-(-blocks // rates.cores)), c["fused_lone"])
        compute = waves * (channels + c["fused_fill"]) * FUSED_TILE * FUSED_TILE
        compute *= FUSED_PRODUCTS * flop_ns / c["fused_share"]
        fused = c["fused_start_ns"] + overlapped(compute, memory)
    spread = BATCHED_PRODUCTS * kernel.item_bytes * float(kernel.columns) * (channels + outputs)
    moved = spread + BATCHED_PRODUCTS * kernel.item_bytes * float(channels) * outputs
    rate = rates.dram_bytes_per_ns
    batched = (
        _tiled(products, c, rates, "vector, whole", moved / (rate * c["memory_share"])) * c["batched_cost"]
    )
    batched += (kernel.read_bytes + kernel.written_bytes + moved) / (rate * c["transform_share"])
    return implicit, fused, c["batched_start_ns"] + TRANSFORMATIONS * rates.launch_ns + batched


def _fastest(kernel: Kernel, c: Coefficients, rates: Rates, is_deep: bool) -> Time:
    found = _algorithms(kernel, c, rates, is_deep)
    # Where a library has one algorithm, it ran that, whatever the kernel was called.
    best = found[int(kernel.items) - 1] if kernel.items and len(found) > 1 else min(found)
    launch = rates.launch_ns
    return Time(launch + best, best, memory_ns(kernel, rates, c["memory_share"]), launch)


def vector_convolution(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Convolutions on the vector units: the faster of Winograd's algorithms where there is one."""
    return _fastest(kernel, c, rates, False)


def vector_gradient(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Gradients of weights on the vector units: the same, with as many splits as it takes."""
    return _fastest(kernel, c, rates, True)


def algorithm(kernel: Kernel, c: Coefficients, rates: Rates) -> str:
    """Return which of :data:`ALGORITHMS` a convolution on the vector units goes by."""
    found = _algorithms(kernel, c, rates, kernel.family.endswith("_wgrad_vector"))
    return ALGORITHMS[found.index(min(found))]


def attention(kernel: Kernel, c: Coefficients, rates: Rates) -> Time:
    """Fused attention: blocks of 64 queries walk over all keys; ``items`` is the unmasked share."""
    launch = rates.launch_ns + c["start_ns"]
    block = 64
    keys = math.ceil(kernel.n / block) * block
    core_flops = rates.flops_per_ns[kernel.dtype] * c["flop_share"] / rates.cores
    pairs = block * keys * kernel.items
    each = pairs * kernel.k * c["products"] * 2.0 / core_flops
    each += (pairs * c["pair_cycles"] + c["block_cycles"]) / rates.clock_ghz
    blocks = kernel.batch * math.ceil(kernel.m / block)
    compute = max(blocks / rates.cores, c["lone"]) * each
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
    "twice": twice,
    "rows": rows,
    "reduction": reduction,
    "matmul": matmul,
    "deep_matmul": deep_matmul,
    "vector_matmul": vector_matmul,
    "batched_matmul": batched_matmul,
    "vector_convolution": vector_convolution,
    "vector_gradient": vector_gradient,
    "attention": attention,
    "link": link,
}

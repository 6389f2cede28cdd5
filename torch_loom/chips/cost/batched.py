"""The formulas over many kernels at once, for fits: they evaluate each thousands of times.

Each function here computes the total of the function of its name in :mod:`torch_loom.chips.cost.formulas`;
a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from torch_loom.chips.cost import formulas
from torch_loom.chips.cost.formulas import Coefficients, Rates
from torch_loom.chips.cost.records import Kernel

Vector = NDArray[np.float64]
Product = tuple[Vector, Vector, Vector, Vector]


class Columns:
    """Kernels of one family, a vector for each of their figures."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        def of(name: str) -> Vector:
            return np.array([getattr(kernel, name) for kernel in kernels], dtype=np.float64)

        self.dtypes = [kernel.dtype for kernel in kernels]
        self.read, self.written, self.footprint = of("read_bytes"), of("written_bytes"), of("footprint_bytes")
        self.items, self.rows, self.columns = of("items"), of("rows"), of("columns")
        self.m, self.n, self.k, self.batch = of("m"), of("n"), of("k"), of("batch")
        self.alignment, self.launches, self.item_bytes = of("alignment"), of("launches"), of("item_bytes")
        self.epilogue = of("epilogue") > 0
        self._tiles: dict[tuple[str, int, str], Tiles] = {}

    def flops(self, rates: Rates) -> Vector:
        """Return the peak of each kernel's dtype."""
        return np.array([rates.flops_per_ns[dtype] for dtype in self.dtypes])

    def clock_ghz(self, rates: Rates) -> Vector:
        """Return the clock of each kernel's dtype that power allows for."""
        return np.array([rates.clock_ghz * rates.sustained.get(dtype, 1.0) for dtype in self.dtypes])

    def tiles(self, plan: str, cores: int, products: str = "") -> Tiles:
        """Return the ways to cut the kernels' products; those of Winograd's batches instead."""
        key = plan, cores, products
        if key not in self._tiles:
            product = self.m, self.n, self.k, self.batch
            batch = np.full_like(self.m, formulas.BATCHED_PRODUCTS)
            if products == "winograd":
                product = self.columns, self.n, np.ceil(self.k / 9), batch
            elif products == "gradient":
                product = self.m, np.ceil(self.n / 9), self.columns, batch
            self._tiles[key] = Tiles(product, plan, cores)
        return self._tiles[key]


class Tiles:
    """Ways to cut products into tiles, those that are allowed: flat, the ways of one kernel side by side.

    ``kernel`` has the number of each way's kernel, ``begins`` the place of each kernel's first way.
    """

    def __init__(self, product: Product, name: str, cores: int) -> None:
        plan = formulas.PLANS[name]
        self.is_matrix = name.startswith("matrix")
        m, n, k, batch = (each[:, None, None] for each in product)
        tile_m, tile_n = (
            np.array(each, dtype=np.float64)[None, :, None] for each in zip(*plan.tiles, strict=True)
        )
        splits = np.array(plan.splits, dtype=np.float64)[None, None, :]
        count = np.ceil(m / tile_m) * np.ceil(n / tile_n) * batch
        area = tile_m * tile_n
        allowed = (splits == 1) | ((k >= plan.least_depth * splits) & (count * splits <= 2 * cores))
        allowed &= area >= plan.least_area

        def of(values: Vector) -> Vector:
            return np.asarray(np.broadcast_to(values, allowed.shape)[allowed])

        self.kernel = np.nonzero(allowed)[0]
        self.begins = np.searchsorted(self.kernel, np.arange(len(product[0])))
        self.area, self.edge, self.splits = of(area), of(tile_m + tile_n), of(splits)
        self.waves, self.depth = of(np.ceil(count * splits / cores)), of(np.ceil(k / splits))
        self.busy = of(np.minimum(cores, count * splits) / cores)
        self.outputs = of(m * n * batch)


def overlapped(first: Vector, second: Vector) -> Vector:
    """Return the time of activities that overlap."""
    longer, shorter = np.maximum(first, second), np.minimum(first, second)
    square = (shorter / np.maximum(longer, 1e-300)) ** 2
    return np.asarray(longer * np.sqrt(np.sqrt(1.0 + square * square)))


def memory_ns(of: Columns, rates: Rates, share: float) -> Vector:
    """Return how long the kernels' bytes take."""
    full, none = rates.cache_bytes * rates.cache_full_share, rates.cache_bytes * rates.cache_none_share
    between = (none - of.footprint) / max(none - full, 1e-9)
    cached = np.where(of.footprint <= full, 1.0, np.where(of.footprint < none, between, 0.0))
    from_cache = (of.read + of.written * rates.cache_write_cost) / rates.cache_bytes_per_ns
    moved = of.read + of.written
    return np.asarray((cached * from_cache + (1.0 - cached) * moved / rates.dram_bytes_per_ns) / share)


def stream(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    launch = (rates.launch_ns + c["start_ns"]) * of.launches
    compute = of.items * c["item_cycles"] / (rates.cores * rates.clock_ghz)
    return launch + overlapped(memory_ns(of, rates, c["memory_share"]), compute)


def twice(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    launch = (rates.launch_ns + c["start_ns"]) * of.launches
    moved = of.read + of.written
    memory = memory_ns(of, rates, c["memory_share"]) * (moved + of.read * c["again"]) / moved
    compute = of.items * c["item_cycles"] / (rates.cores * rates.clock_ghz)
    compute = overlapped(compute, of.columns * c["lane_cycles"] / rates.clock_ghz)
    return launch + overlapped(memory, compute)


def rows(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    column_cycles = np.where(of.item_bytes <= 2, c["column_cycles_16"], c["column_cycles_32"])
    lane_cycles = c["lane_cycles"] * (of.item_bytes / 4.0) ** formulas.LANE_WIDTH_POWER
    launch = (rates.launch_ns + c["start_ns"]) * of.launches
    again = np.clip(of.columns * of.item_bytes / c["kept_bytes"] - 1.0, 0.0, 1.0)
    memory = memory_ns(of, rates, c["memory_share"])
    memory = memory * (1.0 + again * of.read / (of.read + of.written))
    cycles = of.rows * (c["row_cycles"] + of.columns * column_cycles)
    compute = overlapped(cycles / (rates.cores * rates.clock_ghz), of.columns * lane_cycles / rates.clock_ghz)
    return launch + overlapped(memory, compute)


def reduction(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    launch = rates.launch_ns + c["start_ns"]
    memory = memory_ns(of, rates, c["memory_share"])
    spread = of.read * c["byte_cycles"] / (rates.cores * rates.clock_ghz)
    lane_cycles = c["lane_cycles"] * (of.item_bytes / 4.0) ** formulas.LANE_WIDTH_POWER
    lone = of.items * lane_cycles / rates.clock_ghz
    grid = launch + c["grid_ns"] + overlapped(memory, spread)
    return np.where(of.items >= formulas.ONE_CORE_ITEMS, grid, launch + lone)


def _tiled(
    of: Columns,
    tiles: Tiles,
    c: Coefficients,
    rates: Rates,
    memory: Vector,
    least_area: float = 0.0,
) -> Vector:
    slow = np.ones_like(of.alignment)
    for grade in (8, 4, 2):
        slow = np.where(of.alignment == grade, c.get(f"unaligned_{grade}", 1.0), slow)
    at = tiles.kernel
    flop_ns = (2.0 * rates.cores / (of.flops(rates) * c["flop_share"]))[at]
    clock_ghz = of.clock_ghz(rates)
    edge_ns = (c["edge_cycles"] / clock_ghz)[at]
    store_ns = (of.item_bytes * c["store_cycles"] / clock_ghz)[at]
    step = overlapped(tiles.area * flop_ns, tiles.edge * edge_ns) * slow[at]
    waves = np.maximum(tiles.waves, c.get("busy_outputs", 0.0) / tiles.area)
    compute = waves * ((tiles.depth + c["fill"]) * step + tiles.area * store_ns)
    share = compute / (compute + rates.launch_ns + c["derate_ns"])
    compute = compute * (1.0 + c["derate"] * share * share)
    moving = memory[at] * np.maximum(1.0, c["busy_share"] / np.maximum(tiles.busy, 1e-9))
    total = np.hypot(compute, moving) if tiles.is_matrix else overlapped(compute, moving)
    partial = tiles.outputs * (4.0 * (tiles.splits + 1) + of.item_bytes[at])
    split = c["split_ns"] + partial / rates.cache_bytes_per_ns
    total = total + np.where(tiles.splits > 1, split, 0.0)
    if least_area:
        total = np.where(tiles.area >= least_area, total, np.inf)
    return np.asarray(np.minimum.reduceat(total, tiles.begins))


def _dram_ns(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    return np.asarray((of.read + of.written) / (rates.dram_bytes_per_ns * c["memory_share"]))


def _walked(of: Columns, c: Coefficients) -> Vector:
    return np.where(of.items > 0, 1.0 / c.get("inner_share", 1.0), 1.0)


def matmul(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    memory = _dram_ns(of, c, rates) * _walked(of, c)
    found = _tiled(of, of.tiles("matrix", rates.cores), c, rates, memory)
    if of.epilogue.any():
        bias = _tiled(of, of.tiles("matrix, bias", rates.cores), c, rates, memory)
        found = np.where(of.epilogue, bias, found)
    return rates.launch_ns + c["start_ns"] + found


def vector_matmul(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    memory = memory_ns(of, rates, c["memory_share"]) * _walked(of, c)
    found = _tiled(of, of.tiles("vector", rates.cores), c, rates, memory)
    if of.epilogue.any() and c["least_tile"] >= formulas.MIN_EPILOGUE_TILE:
        bias = _tiled(of, of.tiles("vector, bias", rates.cores), c, rates, memory)
        found = np.where(of.epilogue, bias, found)
    return rates.launch_ns + c["start_ns"] + found


def deep_matmul(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    found = _tiled(of, of.tiles("matrix, deep", rates.cores), c, rates, _dram_ns(of, c, rates))
    return rates.launch_ns + c["start_ns"] + found


def batched_matmul(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    memory = memory_ns(of, rates, c["memory_share"])
    tiles = of.tiles("vector, whole", rates.cores)
    return rates.launch_ns + c["start_ns"] + _tiled(of, tiles, c, rates, memory, c["least_tile"])


def _fastest(of: Columns, c: Coefficients, rates: Rates, is_deep: bool) -> Vector:
    memory = memory_ns(of, rates, c["memory_share"])
    plan = of.tiles("vector, deep" if is_deep else "vector", rates.cores)
    implicit = c["start_ns"] + _tiled(of, plan, c, rates, memory)
    by_windows = (of.rows > 0) & (of.batch == 1) & (is_deep or c["winograd"] > 0.5)
    if not by_windows.any():
        return np.asarray(rates.launch_ns + implicit)
    channels = np.ceil((of.n if is_deep else of.k) / 9)
    outputs = of.m if is_deep else of.n
    fused = np.full_like(implicit, np.inf)
    if not is_deep:
        flop_ns = 2.0 * rates.cores / of.flops(rates)
        tile = formulas.FUSED_TILE
        waves = np.ceil(np.ceil(of.rows / tile) * np.ceil(outputs / tile) / rates.cores)
        compute = np.maximum(waves, c["fused_lone"]) * (channels + c["fused_fill"]) * tile * tile
        compute = compute * formulas.FUSED_PRODUCTS * flop_ns / c["fused_share"]
        fused = c["fused_start_ns"] + overlapped(compute, memory)
    spread = formulas.BATCHED_PRODUCTS * of.item_bytes * of.columns * (channels + outputs)
    moved = spread + formulas.BATCHED_PRODUCTS * of.item_bytes * channels * outputs
    rate = rates.dram_bytes_per_ns
    tiles = of.tiles("vector, whole", rates.cores, "gradient" if is_deep else "winograd")
    batched = _tiled(of, tiles, c, rates, moved / (rate * c["memory_share"])) * c["batched_cost"]
    batched = batched + (of.read + of.written + moved) / (rate * c["transform_share"])
    batched = batched + c["batched_start_ns"] + formulas.TRANSFORMATIONS * rates.launch_ns
    found = np.stack([implicit, fused, batched])
    ran = of.items.astype(int) - 1
    # Without tiles the first is the only one; with them it is no choice, but for gradients of weights.
    chosen = np.where(by_windows, (found if is_deep else found[1:]).min(axis=0), implicit)
    chosen = np.where(ran < 0, chosen, np.take_along_axis(found, np.maximum(ran, 0)[None], axis=0)[0])
    return np.asarray(rates.launch_ns + chosen)


def vector_convolution(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    return _fastest(of, c, rates, False)


def vector_gradient(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    return _fastest(of, c, rates, True)


def attention(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    block = 64
    keys = np.ceil(of.n / block) * block
    core_flops = of.flops(rates) * c["flop_share"] / rates.cores
    pairs = block * keys * of.items
    each = pairs * of.k * c["products"] * 2.0 / core_flops
    each = each + (pairs * c["pair_cycles"] + c["block_cycles"]) / rates.clock_ghz
    blocks = of.batch * np.ceil(of.m / block)
    compute = np.maximum(blocks / rates.cores, c["lone"]) * each
    memory = memory_ns(of, rates, c["memory_share"])
    return rates.launch_ns + c["start_ns"] + overlapped(compute, memory)


def link(of: Columns, c: Coefficients, rates: Rates) -> Vector:
    size = of.read + of.written
    start = c["start_ns"]
    if c["joined"] > 0.5:
        return np.hypot(start, size / (rates.link_bytes_per_ns * c["link_share"]))
    size = size + np.minimum(size, formulas.STAGED_BYTES) * c["staging"]
    return start + size / (rates.link_bytes_per_ns * c["link_share"])


BATCHED: Mapping[str, Callable[[Columns, Coefficients, Rates], Vector]] = {
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

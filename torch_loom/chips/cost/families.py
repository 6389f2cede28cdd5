"""The families of kernels: the formula of each, and the coefficients that a chip description may give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Coefficient(NamedTuple):
    """One number of a family: its unit, the values it takes, and what it means."""

    unit: str
    low: float
    high: float
    meaning: str


class Family(NamedTuple):
    """Kernels that one formula describes, and what its coefficients are where a chip does not give them."""

    formula: str
    meaning: str
    defaults: Mapping[str, float]
    like: str = ""
    """Whose coefficients apply, as far as names agree, where a chip gives none of its own."""


# Zero is not allowed: fitting works on logarithms.
COEFFICIENTS: Mapping[str, Coefficient] = {
    "start_ns": Coefficient("ns", 1e-3, 1e9, "what a kernel takes over the chip's launch, however small"),
    "grid_ns": Coefficient("ns", 1e-3, 1e9, "what the second step over all cores takes"),
    "split_ns": Coefficient("ns", 1e-3, 1e9, "the kernel that adds the parts of a split inner dimension"),
    "derate_ns": Coefficient("ns", 1e-3, 1e9, "how short work must be to run at the highest clock"),
    "memory_share": Coefficient(
        "share", 1e-3, 1.25, "of the memory's measured rate that these kernels reach"
    ),
    "link_share": Coefficient("share", 1e-4, 10.0, "of the link's rate"),
    "flop_share": Coefficient("share", 1e-3, 2.0, "of the peak of its dtype that full tiles reach"),
    "inner_share": Coefficient(
        "share", 1e-2, 1.0, "of that rate for operands that both lie along the inner dimension"
    ),
    "busy_share": Coefficient(
        "share", 1e-4, 10.0, "of the cores that must run to draw the memory's full rate"
    ),
    "busy_outputs": Coefficient("outputs", 1.0, 1e6, "that a core must be at work on to run at full speed"),
    "derate": Coefficient("share", 1e-6, 10.0, "how much slower long dense work runs, for power"),
    "item_cycles": Coefficient("cycles", 1e-6, 1e6, "of a core for one element"),
    "byte_cycles": Coefficient("cycles", 1e-6, 1e6, "of a core to read one byte, from the cache too"),
    "store_cycles": Coefficient("cycles", 1e-6, 1e6, "of a core to write one byte of a finished tile"),
    "row_cycles": Coefficient("cycles", 1e-6, 1e9, "of a core for one row, whatever its length"),
    "column_cycles_16": Coefficient("cycles", 1e-6, 1e6, "of a core for one column, elements of 2 bytes"),
    "column_cycles_32": Coefficient("cycles", 1e-6, 1e6, "of a core for one column, larger elements"),
    "lane_cycles": Coefficient(
        "cycles", 1e-6, 1e6, "of latency for one column of one row, elements of 4 bytes"
    ),
    "edge_cycles": Coefficient("cycles", 1e-6, 1e6, "to load one element of a tile's edge"),
    "fill": Coefficient("depth", 1e-6, 1e6, "inner dimension that the start and end of a tile amount to"),
    "unaligned_8": Coefficient("factor", 1.0, 1e3, "slower where rows begin at multiples of 8 bytes, not 16"),
    "unaligned_4": Coefficient("factor", 1.0, 1e3, "slower where rows begin at multiples of 4 bytes, not 8"),
    "unaligned_2": Coefficient("factor", 1.0, 1e3, "slower where rows begin at multiples of 2 bytes, not 4"),
    "least_tile": Coefficient(
        "outputs", 1.0, 16384.0, "of the smallest tile that the library has for batches, or with a bias"
    ),
    "again": Coefficient("share", 1e-3, 1.0, "of what is read twice, how much comes from memory again"),
    "kept_bytes": Coefficient("bytes", 256.0, 1e9, "of the longest row that is not read a second time"),
    "fused_start_ns": Coefficient("ns", 1e-3, 1e9, "the same of Winograd's algorithm in one kernel"),
    "fused_share": Coefficient("share", 1e-3, 2.0, "of the peak that its products reach"),
    "fused_fill": Coefficient("depth", 1e-6, 1e6, "channels that its start and end amount to"),
    "fused_lone": Coefficient("blocks", 1e-3, 1e3, "how many blocks of a core take no longer than one"),
    "batched_start_ns": Coefficient("ns", 1e-3, 1e9, "the same of Winograd's algorithm in four kernels"),
    "batched_cost": Coefficient("factor", 0.1, 10.0, "what its products take, against the same of other ops"),
    "transform_share": Coefficient(
        "share", 1e-3, 1.25, "of the memory's rate that its transformations reach"
    ),
    "pair_cycles": Coefficient("cycles", 1e-6, 1e6, "of a core for the softmax of one query and key"),
    "block_cycles": Coefficient("cycles", 1e-6, 1e9, "of a core for one block of queries"),
    "products": Coefficient("count", 1.0, 100.0, "matrix products per pair: 2 forward, 5 or more backward"),
    "lone": Coefficient("blocks", 1e-3, 1e3, "what one block costs where cores are idle, in blocks"),
    "staging": Coefficient("bytes", 1e-6, 100.0, "of the link that a byte of the first piece costs more"),
    "winograd": Coefficient("flag", 0.0, 1.0, "1: the library has Winograd's algorithm for these, 0: not"),
    "joined": Coefficient("flag", 0.0, 1.0, "1: latency and bytes overlap, 0: they add up"),
}

_STREAM = {"start_ns": 100.0, "item_cycles": 0.1, "memory_share": 1.0}
_HEAVY = {**_STREAM, "start_ns": 250.0, "item_cycles": 0.3}
_BATCH_NORM = {**_STREAM, "start_ns": 2000.0, "again": 0.7, "lane_cycles": 2.0}
_BATCH_NORM_BACKWARD = {**_BATCH_NORM, "start_ns": 2500.0, "lane_cycles": 3.0}
_ROWS = {
    "start_ns": 1000.0,
    "memory_share": 1.0,
    "row_cycles": 50.0,
    "column_cycles_16": 0.4,
    "column_cycles_32": 0.6,
    "lane_cycles": 0.2,
    "kept_bytes": 1e9,
}
_NORMALISED = {**_ROWS, "kept_bytes": 24_576.0}
_REDUCTION = {
    "start_ns": 700.0,
    "grid_ns": 4400.0,
    "memory_share": 1.0,
    "byte_cycles": 0.04,
    "lane_cycles": 0.17,
}
_PRODUCT = {
    "start_ns": 1000.0,
    "flop_share": 1.0,
    "edge_cycles": 0.03,
    "fill": 60.0,
    "split_ns": 2000.0,
    "store_cycles": 0.03,
    "memory_share": 0.95,
    "busy_share": 0.3,
    "derate": 0.6,
    "derate_ns": 20_000.0,
}
# Rows that are not aligned: V100 and T4 show 1.03 to 1.06 in every grade, steps of an RTX 3090 the same.
_MATMUL = {
    **_PRODUCT,
    "inner_share": 1.0,
    "busy_outputs": 2048.0,
    "unaligned_8": 1.05,
    "unaligned_4": 1.05,
    "unaligned_2": 1.05,
}
# Vector units load single elements of float32: V100, T4 and A100 show no cost of rows that are not aligned.
_VECTOR = {
    "start_ns": 1300.0,
    "flop_share": 0.8,
    "edge_cycles": 0.37,
    "fill": 25.0,
    "split_ns": 2400.0,
    "store_cycles": 0.03,
    "memory_share": 0.5,
    "busy_share": 0.4,
    "derate": 0.016,
    "derate_ns": 1000.0,
}
_WINOGRAD = {
    "winograd": 1.0,
    "fused_start_ns": 3000.0,
    "fused_share": 0.6,
    "fused_fill": 10.0,
    "fused_lone": 1.5,
    "batched_start_ns": 5000.0,
    "batched_cost": 1.0,
    "transform_share": 0.7,
}
# Channels are filled up to multiples of 16 bytes where that is what a kernel needs: all rows are aligned.
_CONVOLUTION = {**_PRODUCT, "split_ns": 5000.0, "flop_share": 0.9, "fill": 40.0, "memory_share": 0.9}
_CONVOLUTION_VECTOR = {
    **_VECTOR,
    "fill": 25.0,
    "split_ns": 5000.0,
    "memory_share": 0.8,
    "busy_outputs": 8192.0,
}
_ATTENTION = {
    "start_ns": 3100.0,
    "flop_share": 0.67,
    "pair_cycles": 0.017,
    "block_cycles": 3300.0,
    "products": 2.0,
    "lone": 0.65,
    "memory_share": 1.0,
}
_LINK = {"start_ns": 15_000.0, "link_share": 0.9, "joined": 1.0}

FAMILIES: Mapping[str, Family] = {
    "elementwise": Family("stream", "a few instructions per element, dense operands of one dtype", _STREAM),
    "elementwise_heavy": Family("stream", "exponentials, roots and the like per element, dense", _HEAVY),
    "elementwise_strided": Family(
        "stream", "operands that are broadcast, strided or of several dtypes", {**_STREAM, "item_cycles": 0.3}
    ),
    "fill": Family("stream", "writes a constant", _STREAM),
    "copy": Family("stream", "a dense copy", _STREAM),
    "copy_transposed": Family(
        "stream", "a copy that reads across rows", {**_STREAM, "start_ns": 400.0, "item_cycles": 1.7}
    ),
    "concatenate": Family("stream", "joins tensors", {**_STREAM, "start_ns": 600.0, "item_cycles": 0.3}),
    "foreach": Family("stream", "one op over a list of tensors", {**_STREAM, "start_ns": 1500.0}),
    "random": Family("stream", "draws random numbers", {**_HEAVY, "start_ns": 800.0}),
    "dropout": Family("stream", "drops elements at random, writes the mask", {**_HEAVY, "start_ns": 800.0}),
    "gather": Family("stream", "reads rows by index", {**_STREAM, "start_ns": 700.0, "item_cycles": 0.14}),
    "scatter": Family(
        "stream", "adds to elements by index", {**_STREAM, "start_ns": 1500.0, "item_cycles": 1.0}
    ),
    "sort": Family("stream", "sorts: one pass over all per digit", {**_STREAM, "start_ns": 3000.0}),
    "scan": Family("stream", "running sums", {**_STREAM, "start_ns": 1500.0, "item_cycles": 0.5}),
    "pooling": Family(
        "stream", "items are outputs times window", {**_STREAM, "start_ns": 1300.0, "item_cycles": 0.45}
    ),
    "pooling_backward": Family(
        "stream", "items are inputs times window", {**_STREAM, "start_ns": 1300.0, "item_cycles": 0.45}
    ),
    "batch_norm": Family("twice", "per channel over batch and space", _BATCH_NORM),
    "batch_norm_own": Family("twice", "by PyTorch's own kernels", _BATCH_NORM, "batch_norm"),
    "batch_norm_last": Family("twice", "of channels that lie innermost", _BATCH_NORM, "batch_norm"),
    "batch_norm_inference": Family(
        "stream", "with statistics that are known", {**_STREAM, "start_ns": 1000.0}
    ),
    "batch_norm_inference_own": Family(
        "stream",
        "by PyTorch's own kernels: items are threads",
        {**_STREAM, "start_ns": 1000.0, "item_cycles": 0.5},
        "batch_norm_inference",
    ),
    "batch_norm_backward": Family("twice", "its gradient", _BATCH_NORM_BACKWARD),
    "batch_norm_backward_own": Family(
        "twice", "by PyTorch's own kernels", _BATCH_NORM_BACKWARD, "batch_norm_backward"
    ),
    "batch_norm_backward_last": Family(
        "twice", "of channels that lie innermost", _BATCH_NORM_BACKWARD, "batch_norm_backward"
    ),
    "depthwise_convolution": Family(
        "stream", "items are outputs times window", {**_STREAM, "start_ns": 2000.0, "item_cycles": 0.3}
    ),
    "depthwise_dgrad": Family(
        "stream",
        "the gradient of its source",
        {**_STREAM, "start_ns": 2000.0, "item_cycles": 0.4},
        "depthwise_convolution",
    ),
    "depthwise_wgrad": Family(
        "stream", "the gradient of its weights", {**_STREAM, "start_ns": 3000.0, "item_cycles": 0.8}
    ),
    "depthwise_last": Family(
        "stream",
        "of channels that lie innermost",
        {**_STREAM, "start_ns": 2000.0, "item_cycles": 0.3},
        "depthwise_convolution",
    ),
    "depthwise_last_dgrad": Family(
        "stream",
        "the gradient of its source",
        {**_STREAM, "start_ns": 2000.0, "item_cycles": 0.4},
        "depthwise_dgrad",
    ),
    "depthwise_last_wgrad": Family(
        "stream",
        "the gradient of its weights",
        {**_STREAM, "start_ns": 3000.0, "item_cycles": 0.8},
        "depthwise_wgrad",
    ),
    "depthwise_last_wgrad_direct": Family(
        "stream",
        "the same of float32 and larger windows, without tiles",
        {**_STREAM, "start_ns": 3000.0, "item_cycles": 1.3},
        "depthwise_last_wgrad",
    ),
    "layout": Family(
        "stream", "channels first to last and back", {**_STREAM, "start_ns": 1300.0, "memory_share": 0.35}
    ),
    "vector_product": Family(
        "stream", "a matrix times a vector", {**_STREAM, "start_ns": 1500.0, "memory_share": 0.9}
    ),
    # Exponentials cost the same in every width.
    "softmax": Family("rows", "up to 1024 columns", {**_ROWS, "column_cycles_32": 0.4}),
    "softmax_long": Family(
        "rows", "more columns than one warp keeps", {**_NORMALISED, "column_cycles_32": 0.4}
    ),
    "softmax_backward": Family("rows", "its gradient", {**_ROWS, "column_cycles_32": 0.4}),
    "layer_norm": Family("rows", "mean, variance and scaling of each row", _NORMALISED),
    "layer_norm_backward": Family("rows", "the gradient of its input", _ROWS),
    "group_norm": Family("rows", "the same of groups of channels", _NORMALISED, "layer_norm"),
    "group_norm_backward": Family("rows", "the gradient of its input", _ROWS, "layer_norm_backward"),
    "reduce_rows": Family("rows", "sums along the innermost dimension", _ROWS),
    "reduce_columns": Family("rows", "sums across rows", {**_ROWS, "start_ns": 1500.0}),
    "reduce_all": Family("reduction", "sums everything", _REDUCTION),
    "matmul": Family("matmul", "on matrix units", _MATMUL),
    "matmul_vector": Family(
        "vector_matmul",
        "on vector units: float32 without TF32, float64",
        {**_VECTOR, "inner_share": 1.0, "least_tile": 8192.0},
    ),
    "batched_matmul_vector": Family(
        "batched_matmul",
        "batches of them",
        {**_VECTOR, "least_tile": 1024.0, "busy_outputs": 8192.0},
        "matmul_vector",
    ),
    "convolution": Family("matmul", "as a matrix product, on matrix units", _CONVOLUTION),
    "convolution_dgrad": Family("matmul", "the gradient of its source", _CONVOLUTION, "convolution"),
    "convolution_wgrad": Family("deep_matmul", "the gradient of its weights", _CONVOLUTION, "convolution"),
    "convolution_few": Family(
        "matmul", "of channels that fill no multiple of 8, as of pictures", _CONVOLUTION, "convolution"
    ),
    "convolution_few_dgrad": Family("matmul", "the gradient of its source", _CONVOLUTION, "convolution_few"),
    "convolution_few_wgrad": Family(
        "deep_matmul", "the gradient of its weights", _CONVOLUTION, "convolution_few"
    ),
    "convolution_vector": Family(
        "vector_convolution",
        "as a matrix product or by Winograd's algorithm, on vector units",
        {**_CONVOLUTION_VECTOR, **_WINOGRAD},
    ),
    "convolution_dgrad_vector": Family(
        "vector_convolution",
        "the gradient of its source",
        {**_CONVOLUTION_VECTOR, **_WINOGRAD},
        "convolution_vector",
    ),
    "convolution_wgrad_vector": Family(
        "vector_gradient",
        "the gradient of its weights",
        {**_CONVOLUTION_VECTOR, **_WINOGRAD},
        "convolution_vector",
    ),
    "convolution_tf32": Family("matmul", "of float32, on matrix units", _CONVOLUTION, "convolution"),
    "convolution_dgrad_tf32": Family(
        "matmul", "the gradient of its source", _CONVOLUTION, "convolution_tf32"
    ),
    "convolution_wgrad_tf32": Family(
        "deep_matmul", "the gradient of its weights", _CONVOLUTION, "convolution_tf32"
    ),
    **{
        f"convolution_grouped{role}{units}": Family(
            formula, f"of groups of channels{what}", defaults, f"convolution{role}{units}"
        )
        for units, defaults, formulas in (
            ("", _CONVOLUTION, ("matmul", "matmul", "deep_matmul")),
            ("_tf32", _CONVOLUTION, ("matmul", "matmul", "deep_matmul")),
            (
                "_vector",
                {**_CONVOLUTION_VECTOR, **_WINOGRAD},
                ("vector_convolution", "vector_convolution", "vector_gradient"),
            ),
        )
        for role, what, formula in zip(
            ("", "_dgrad", "_wgrad"),
            ("", ": the gradient of the source", ": the gradient of weights"),
            formulas,
            strict=True,
        )
    },
    "attention_masked": Family("attention", "with a mask, on matrix units", _ATTENTION, "attention"),
    "attention": Family("attention", "fused, on matrix units", _ATTENTION),
    "attention_vector": Family(
        "attention",
        "fused, on vector units",
        {**_ATTENTION, "flop_share": 1.0, "pair_cycles": 0.5, "lone": 1.5},
    ),
    "attention_backward": Family(
        "attention", "its gradient, on matrix units", {**_ATTENTION, "products": 5.0}
    ),
    "attention_backward_vector": Family(
        "attention",
        "its gradient, on vector units",
        {**_ATTENTION, "products": 5.0, "flop_share": 1.0, "pair_cycles": 0.5, "lone": 1.5},
    ),
    "host_to_device": Family(
        "link",
        "from memory that may be paged out",
        {**_LINK, "link_share": 0.3, "joined": 0.0, "staging": 0.5},
    ),
    "host_to_device_pinned": Family("link", "from page-locked memory", _LINK),
    "device_to_host": Family(
        "link", "to memory that may be paged out", {**_LINK, "link_share": 0.2, "joined": 0.0, "staging": 0.5}
    ),
    "device_to_host_pinned": Family("link", "to page-locked memory", _LINK),
    "peer": Family("link", "to another device", _LINK),
}


# Factors of alignments, from the best to the worst.
GRADES = ("unaligned_8", "unaligned_4", "unaligned_2")

# What hardware cannot exceed: shares of a peak, nanoseconds of a start, shares of the DRAM's rate that bytes
# take which must be moved. Transfers over the link start in the host, which may take longer.
MAX_FLOP_SHARE, MAX_START_NS, MAX_DRAM_SHARE = 1.1, 20_000.0, 0.95
# Power takes no more than half of the clock.
MAX_DERATE = 1.0
FLOP_SHARES = ("flop_share", "fused_share")
_STARTS = ("start_ns", "fused_start_ns", "batched_start_ns", "grid_ns", "split_ns")
_MEMORY_SHARES = ("memory_share", "transform_share")


def limit(family: str, name: str, dram_share: float, sustained: Mapping[str, float] | None = None) -> float:
    """Return the largest value of a coefficient that hardware allows for.

    Args:
        dram_share: of the DRAM's peak, the rate to which memory shares refer.
        sustained: by dtype, the share of its clock's peak to which shares of operations refer.
    """
    if name in FLOP_SHARES:
        dtype = "float32" if is_on_vector_units(family) else "float16"
        return MAX_FLOP_SHARE / (sustained or {}).get(dtype, 1.0)
    if name == "derate":
        return MAX_DERATE
    if name in _STARTS and FAMILIES[family].formula != "link":
        return MAX_START_NS
    if name in _MEMORY_SHARES:
        return min(COEFFICIENTS[name].high, MAX_DRAM_SHARE / dram_share)
    return COEFFICIENTS[name].high


def is_on_vector_units(family: str) -> bool:
    """Return whether a family's products run on vector units."""
    return FAMILIES[family].formula.startswith(("vector_", "batched_")) or family.endswith("_vector")


def given_or_like(family: str, given: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return a family's coefficients: those given, else of the family that it is like, else its defaults."""
    declared = FAMILIES[family]
    found = dict(declared.defaults)
    if declared.like and family not in given:
        other = given_or_like(declared.like, given)
        if declared.like in given or FAMILIES[declared.like].like:
            found.update({name: value for name, value in other.items() if name in found})
    return {**found, **given.get(family, {})}


def defaults(family: str) -> dict[str, float]:
    """Return the coefficients of a family where a chip gives none."""
    return dict(FAMILIES[family].defaults)

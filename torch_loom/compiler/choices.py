"""What options of the compiler can be chosen from."""

from __future__ import annotations

BALANCER_POLICIES = (
    *("default", "NLP", "Ribbon", "MinimizeGrid", "MaximizeTMinimizeGrid", "Random", "CNN"),
    "SingleOpPerEpoch",
)
DATA_FORMATS = (
    *("Float32", "Float16", "Float16_b", "Bfp8", "Bfp8_b", "Bfp4", "Bfp4_b", "Bfp2", "Bfp2_b", "Lf8"),
    *("Int32", "Int8", "UInt16"),
)
MATH_FIDELITIES = ("LoFi", "HiFi2", "HiFi3", "HiFi4")
TRACE_LEVELS = ("NONE", "LIGHT", "VERBOSE")
DRAM_PLACEMENT_ALGORITHMS = ("ROUND_ROBIN", "ROUND_ROBIN_FLIP_FLOP", "GREATEST_CAPACITY", "CLOSEST")
CHIP_PLACEMENT_POLICIES = ("MMIO_LAST", "SNAKE")
HARVESTABLE_ROWS = (*range(1, 6), *range(7, 12))

"""How well plans use a chip: BERT-base on wormhole_b0.

Everything here is a prediction of the cost model, the same on every machine. The bound of the chip is what no
plan can beat: all ops on their most efficient grids without a core idle, or parameters read once from DRAM,
whichever takes longer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target
from benchmarks.compile import Encoder

CHIP = "wormhole_b0"
# Rows and words of the inputs of BERT-base: one question, and a batch.
SIZES = ((1, 128), (64, 128))
FORMATS: tuple[dict[str, Any], ...] = ({}, {"default_df_override": "Bfp8_b", "math_fidelity": "HiFi2"})


SUBJECT = Subject(
    "balance",
    "Plans",
    "How well plans use a chip, by the cost model.",
    {
        "policy": Target(
            1 / 1.3, "x", "throughput of MinimizeGrid over that of default, BERT-base, at worst"
        ),
        "bound": Target(
            1.25,
            "x",
            "time between two runs over the chip's bound max(compute, DRAM), BERT-base, at worst",
        ),
    },
)


def planned(net: nn.Module, inputs: torch.Tensor, **options: Any) -> dict[str, Any]:
    """Return the plan of a model."""
    import torch_loom

    return torch_loom.compile(net, (inputs,), cache=False, chip=CHIP, **options).plan


def bound_seconds(smallest: Mapping[str, Any]) -> float:
    """Return the least time between two runs that a chip allows.

    Args:
        smallest: the plan of MinimizeGrid: each op on the grid that wastes least.
    """
    rows, columns = smallest["grid"]
    ops = [op for epoch in smallest["epochs"] for op in epoch["ops"]]
    busy = sum(op["cycles"] * op["grid_size"][0] * op["grid_size"][1] for op in ops)
    moved = sum(op["parameter_bytes"] for op in ops)
    # A chip with one epoch keeps its parameters, and reads none.
    rate = max(
        (e["dram_bytes"] / e["dram_cycles"] for e in smallest["epochs"] if e["dram_cycles"]), default=0
    )
    read = moved / rate if rate else 0.0
    return max(busy / (rows * columns), read) / (smallest["clock_ghz"] * 1e9) / smallest["num_chips"]


def bert_base(layers: int) -> tuple[list[float], list[float]]:
    """Return both figures for each size and format, printing a line each."""
    net = Encoder(layers, 768, 12).eval()
    policies, bounds = [], []
    for rows, length in SIZES:
        ids = torch.zeros(rows, length, dtype=torch.long)
        for formats in FORMATS:
            default, smallest = (
                planned(net, ids, balancer_policy=policy, **formats) for policy in ("default", "MinimizeGrid")
            )
            rates = [plan["totals"]["samples_per_second"] for plan in (default, smallest)]
            policies.append(rates[1] / rates[0])
            bounds.append(default["totals"]["interval_seconds"] / bound_seconds(smallest))
            name = formats.get("default_df_override", "Float32")
            print(
                f"{rows} x {length} words, {name}: default {rates[0]:,.0f} samples/s, MinimizeGrid "
                f"{rates[1]:,.0f} samples/s, {bounds[-1]:.2f} of the bound",
                flush=True,
            )
    return policies, bounds


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Predicts the figures, printing a line each."""
    policies, bounds = bert_base(2 if quick else 12)
    found = {"policy": max(policies), "bound": max(bounds)}
    return [SUBJECT.show(Figure(name, value, value)) for name, value in found.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(measure, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Predicted throughput of pipelines over Wormhole chips.

A stage a chip: the blocks of a model are split where the compiler predicts equal times, each part is compiled
for one chip, and the slowest part, or the slowest link between two, gives the rate: with the start and the
fill of its epochs, and PCIe at both ends. Published rates of several chips are of copies of a model, not of a
pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from examples.pipeline_models import bert, resnet
from torch_loom.chips import load
from torch_loom.chips.rates import rates
from torch_loom.compiler.api import compile_module
from torch_loom.compiler.options import configuration
from torch_loom.compiler.target import target_of

CHIP = "wormhole_b0"
CHIPS = (1, 2, 4, 8)
BATCH = 16
OPTIONS: Mapping[str, Any] = {"default_df_override": "Bfp8_b", "math_fidelity": "HiFi2"}
NOTE = (
    f"What `loom compile` predicts for a stage a chip of `wormhole_b0`, for {BATCH} samples and "
    f"{', '.join(f'`{key}={value}`' for key, value in OPTIONS.items())}. A block runs on one chip, so that "
    "the slowest block bounds the rate however many chips there are. Published rates of several chips are of "
    "copies of a model (Boards), not of a pipeline."
)
BYTES_PER_VALUE = 1088 / 1024  # a tile of Bfp8_b


@dataclass(frozen=True)
class Predicted:
    """The rate of one model over so many chips."""

    model: str
    num_chips: int
    samples_per_second: float


_known: dict[object, float] = {}


def rate(part: nn.Module, sample: Tensor) -> float:
    """Returns samples a second of a chip with a part; parts that differ in their weights alone are one."""
    same = (
        *((type(module), module.extra_repr(), getattr(module, "heads", 0)) for module in part.modules()),
        sample.shape,
    )
    if same not in _known:
        compiled = compile_module(part, [sample], chip=CHIP, cache=False, **OPTIONS)
        _known[same] = sample.shape[0] / compiled.plan["end_to_end"]["chip_seconds"]
    return _known[same]


def splits(costs: Sequence[float], num_parts: int) -> list[int]:
    """Returns where each part ends, so that the costliest part costs least."""
    best: list[list[tuple[float, list[int]]]] = [[(0.0, [])] + [(float("inf"), [])] * len(costs)]
    for _ in range(num_parts):
        row = [(float("inf"), list[int]())] * (len(costs) + 1)
        for end in range(1, len(costs) + 1):
            row[end] = min(
                (max(best[-1][begin][0], sum(costs[begin:end])), [*best[-1][begin][1], end])
                for begin in range(end)
            )
        best.append(row)
    return best[-1][-1][1]


def predictions(name: str, blocks: Sequence[nn.Module], sample: Tensor) -> Iterator[Predicted]:
    """Yields the rates of a model over each number of chips."""
    target = target_of(load(CHIP), configuration())
    link_bytes_per_second = target.link_bytes_per_cycle * target.clock_ghz * 1e9
    host_bytes_per_second = rates(target.chip).link_bytes_per_ns * 1e9
    inputs, costs = [sample], []
    for block in blocks:
        costs.append(sample.shape[0] / rate(block, inputs[-1]))
        inputs.append(torch.empty_like(block(inputs[-1])))
    for num_chips in CHIPS:
        ends = splits(costs, num_chips)
        parts = [nn.Sequential(*blocks[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
        found = [rate(part, inputs[begin]) for part, begin in zip(parts, [0, *ends], strict=False)]
        crossing = [inputs[end].numel() * BYTES_PER_VALUE / sample.shape[0] for end in ends[:-1]]
        links = [link_bytes_per_second / num_bytes for num_bytes in crossing]
        ends_of_all = [host_bytes_per_second * sample.shape[0] / x.nbytes for x in (inputs[0], inputs[-1])]
        yield Predicted(name, num_chips, min(found + links + ends_of_all))


def rows(quick: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the table, its head first; ``quick``: of smaller models."""
    device = "loom"
    models: dict[str, tuple[nn.Sequential, Tensor]] = {
        "ResNet-50": (resnet((2, 2, 2, 2), 16) if quick else resnet(), torch.rand(BATCH, 3, 224, 224)),
        "BERT-large": (bert(8, 128, 4) if quick else bert(), torch.zeros(BATCH, 384, dtype=torch.int64)),
    }
    yield "samples a second", "chips", "predicted"
    with torch.no_grad():
        for name, (model, sample) in models.items():
            blocks = list(model.eval().to(device))
            for prediction in predictions(name, blocks, sample.to(device)):
                yield name, str(prediction.num_chips), f"{prediction.samples_per_second:.0f}"


def line(name: str, chips: str, predicted: str) -> str:
    """Returns a row as text."""
    return f"{name:<18}{chips:>6}{predicted:>11}"

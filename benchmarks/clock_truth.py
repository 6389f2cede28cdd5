"""How far chips' clocks are off, over a folder of measurements: by family, source, half.

    python -m benchmarks.clock_error FOLDER

Read are sweeps of ops (``torch_loom.chips.cost.sweep``), H200 model steps and steps of timm's models, here
and one folder below. Which half of its source a row belongs to, a hash of what it timed says: ``make fit``
sees one half, and the other shows what to expect of what nobody measured.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.blocks import markdown_table
from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips import relatives, uncertainty
from torch_loom.chips.cost import CostModel, sweep
from torch_loom.chips.cost.lowerings.common import NARROW

# The chip of a sweep, by what the sweep calls its card: the longest text that the card's name begins with.
CARDS = {
    "v100": "v100",
    "Tesla V100-PCIE": "v100_pcie",
    "Tesla V100-SXM2": "v100",
    "t4": "t4",
    "Tesla T4": "t4",
    "Tesla P4": "p4",
    "Tesla P100": "p100",
    "NVIDIA A100-PCIE-40GB": "a100_pcie40",
    "NVIDIA A100-SXM4": "a100",
    "NVIDIA A10": "a10",
    "NVIDIA A40": "a40",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA H100": "h100",
    "NVIDIA H200": "h200",
}
ELEMENTWISE = ("add", "mul", "div", "mul_scalar", "relu", "relu_", "gelu", "tanh", "copy")
NORMS = ("softmax", "layer_norm", "batch_norm", "batch_norm_inference", "batch_norm_backward")
# What the names of models begin with that are no convnets; hybrids count as convnets.
TRANSFORMERS = (
    *(
        "bert",
        "distilbert",
        "gpt",
        "opt-",
        "llama",
        "t5",
        "vit",
        "deit",
        "beit",
        "cait",
        "xcit",
        "tnt",
        "swin",
    ),
    *("crossvit", "pvt", "twins", "mixer", "resmlp", "gmlp", "levit", "poolformer", "dinov2", "roberta"),
    *("albert", "electra", "modernbert", "bart", "bloom", "qwen", "mistral", "mixtral", "gemma", "phi"),
    "pythia",
)
FAMILIES = (
    *("half GEMM", "float GEMM", "elementwise", "norm and softmax", "convolution", "convolution gradient"),
    *("depthwise", "transformer steps", "convnet steps, h200", "convnet steps, others", "other ops"),
)
# Own measurements: with which card, versions and protocol each was made, it says itself.
MEASURED = Path(__file__).parent / "measured"
# Of fewer rows no interval is made.
LEAST_ROWS = 20
# What is asked of the half that is not fitted.
TARGETS = {
    "half GEMM": "6%",
    "float GEMM": "9%",
    "elementwise": "3.5%",
    "norm and softmax": "8%",
    "convolution": "18%",
    "convolution gradient": "25%",
    "depthwise": "25%",
    "transformer steps": "4%",
    "convnet steps, h200": "12%",
    "convnet steps, others": "15%",
}


class Found(NamedTuple):
    """One row: its family, the file it is from, its name, whether it was fitted, its error, what it took."""

    family: str
    source: str
    name: str
    is_fitted: bool
    error: float
    took_ns: float


def chip_of(card: str) -> str | None:
    """Return the chip that stands for a card; None where none does."""
    known = [name for name in CARDS if card.startswith(name)]
    return CARDS[max(known, key=len)] if known else None


def family_of(case: sweep.Case) -> str:
    """Return the family of a sweep's row, as the report groups them."""
    if case.op in ("mm", "linear", "bmm"):
        return "half GEMM" if case.dtype in NARROW else "float GEMM"
    if case.op in ELEMENTWISE:
        return "elementwise"
    if case.op in NORMS:
        return "norm and softmax"
    if case.op.startswith("depthwise") or any("depthwise" in kernel.family for kernel in case.kernels):
        return "depthwise"
    if case.op.startswith("conv2d"):
        return "convolution" if case.op == "conv2d" else "convolution gradient"
    return "other ops"


def unfitted(chip: chips.Chip, **figures: Any) -> chips.Chip:
    """Return a chip without what a fit found of its cache, and with other figures."""
    return dataclasses.replace(
        chip, l2_gbps=0.0, l2_full_share=0.0, l2_none_share=0.0, l2_write_cost=0.0, **figures
    )


def without_card(chip: chips.Chip) -> CostModel:
    """Return the cost model that a chip would have if no card with such cores had been measured.

    It has the figures of the data sheet, guesses for those that a fit writes, and the curves of the measured
    chips that it is most like.
    """
    measured = [each for each in map(chips.load, chips.available()) if each.efficiency and each.product_name]
    others = [each for each in measured if not relatives.is_alike(each, chip)]
    bare = unfitted(
        chip,
        dram_share=relatives.memory_share(chip, others),
        efficiency={},
        efficiency_of="",
    )
    return CostModel(chip_rates.rates(bare), relatives.joined(bare, relatives.nearest(bare, others)))


def ops(path: Path, say: Callable[[str], object], is_left_out: bool = False) -> list[Found]:
    """Return the rows of a sweep, forecast by the chip of its card; collectives are left out.

    With ``is_left_out`` by what :func:`without_card` says of the chip: then no row is fitted.
    """
    name = chip_of(sweep.device_of(path))
    if name is None:
        say(f"{path.name}: no chip stands for {sweep.device_of(path)!r}")
        return []
    chip = chips.load(name)
    model = without_card(chip) if is_left_out else chip_rates.model(chip)
    found = []
    for case in sweep.read(path):
        if case.kernels:
            error = model.total_ns(case.kernels) / case.device_ns - 1.0
            half = not is_left_out and sweep.is_fitted(case.key)
            found.append(Found(family_of(case), path.stem, case.name, half, error, case.device_ns))
    return found


def is_convnet(model: str) -> bool:
    """Return whether a model's steps are counted as a convnet's."""
    return not model.startswith(TRANSFORMERS)


def step_key(row: dict[str, Any]) -> str:
    """Return what a step's half is decided by: its model, so that no model is in both."""
    return f"step {row['model']}"


def steps(
    path: Path, kernels_of: Callable[[dict[str, Any]], Any], rows: Iterable[dict[str, Any]]
) -> list[Found]:
    """Return the model steps of a card: the H200's where the file does not say.

    Of those that name no card all are fitted, of others one half of the models.
    """
    card = _card_of(path)
    chip = chip_of(card) if card else "h200"
    if chip is None:
        return []
    model = chip_rates.model(chips.load(chip))
    found = []
    for row in rows:
        predicted = sum(model.time(kernel).total_ns * count for kernel, count in kernels_of(row).items())
        convnet = "convnet steps, h200" if chip == "h200" else "convnet steps, others"
        family = convnet if is_convnet(row["model"]) else "transformer steps"
        name = f"{row['model']} {row['dtype']} {row['mode']} {row['shape']}"
        name += " tf32" if row.get("tf32") else ""
        took = row["kernel_ms"] * 1e6
        half = not card or sweep.is_fitted(step_key(row))
        found.append(Found(family, path.stem, name, half, predicted / took - 1.0, took))
    return found


def report(found: Sequence[Found], by_source: bool = True) -> str:
    """Return the table of mean errors by family, and by source within it."""
    lines = []
    for family in FAMILIES:
        mine = [each for each in found if each.family == family]
        if not mine:
            continue
        lines.append(_line(f"**{family}**", "all", mine, TARGETS.get(family, "")))
        if by_source:
            for source in dict.fromkeys(each.source for each in mine):
                lines.append(_line("", source, [each for each in mine if each.source == source], ""))
    headings = ["family", "source", "rows", "fitted half", "other half", "target", "worst of the other half"]
    return markdown_table(headings, lines)


def _line(family: str, source: str, found: Sequence[Found], target: str) -> list[str]:
    halves = [[each for each in found if each.is_fitted is half] for half in (True, False)]
    means = [f"{np.mean([abs(each.error) for each in half]):.1%}" if half else "none" for half in halves]
    worst = max(halves[1], key=lambda each: abs(each.error), default=None)
    named = f"{worst.error:+.0%} {worst.name}" if worst else ""
    return [family, source, str(len(found)), *means, target, named]


def without_card_report(found: Sequence[Found]) -> str:
    """Return the table of mean errors of cards that are left out: families, and sources in columns."""
    sources = list(dict.fromkeys(each.source for each in found))
    lines = []
    for family in FAMILIES:
        mine = [each for each in found if each.family == family]
        if mine:
            of_source = [[abs(each.error) for each in mine if each.source == source] for source in sources]
            cells = [f"{np.mean(errors):.1%}" if errors else "" for errors in of_source]
            mean = np.mean([abs(each.error) for each in mine])
            lines.append([f"**{family}**", str(len(mine)), f"{mean:.1%}", *cells])
    names = [source.removesuffix("_ops").replace("_", " ") for source in sources]
    return markdown_table(["family", "rows", "all", *names], lines)


# Of the half that nothing is fitted to, one part makes the intervals and the other tests them.
def makes_intervals(each: Found) -> bool:
    """Return whether a row is of the part of the other half from which intervals are made."""
    return hashlib.sha256(f"interval {each.source} {each.name}".encode()).digest()[0] % 2 == 0


def interval_name(family: str) -> str:
    """Return the family whose interval holds for it: steps of an H200 are steps."""
    return family.partition(",")[0]


def percentile(found: Sequence[Found], share: float) -> float:
    """Return the percentile of measured time over forecast: the middle of two.

    In one each row has the same weight, in the other each source: neither the card with the most rows nor the
    one with the fewest decides alone.
    """
    ratios = np.array([1.0 / (1.0 + each.error) for each in found])
    counts = Counter(each.source for each in found)
    order = np.argsort(ratios)
    both = []
    for weights in (np.ones(len(found)), np.array([1.0 / counts[each.source] for each in found])):
        # Of n values the i-th stands at i / (n + 1): so much of what is drawn later lies below it on average.
        reached = np.cumsum(weights[order]) / (weights.sum() + weights.mean())
        both.append(float(np.interp(share, reached, ratios[order])))
    return math.sqrt(math.prod(both))


def intervals(found: Sequence[Found]) -> dict[str, dict[str, float | int]]:
    """Return by family what holds eight of ten rows, and how many of the other rows it does hold."""
    tail = (1.0 - uncertainty.SHARE) / 2
    made: dict[str, dict[str, float | int]] = {}
    for name in dict.fromkeys(interval_name(family) for family in FAMILIES):
        mine = [each for each in found if interval_name(each.family) == name and not each.is_fitted]
        taken = [each for each in mine if makes_intervals(each)]
        rest = [each for each in mine if not makes_intervals(each)]
        if len(taken) < LEAST_ROWS or not rest:
            continue
        low, high = percentile(taken, tail), percentile(taken, 1.0 - tail)
        held = sum(low <= 1.0 / (1.0 + each.error) <= high for each in rest) / len(rest)
        made[name] = {
            "low": round(low, 3),
            "high": round(high, 3),
            "rows": len(taken),
            "held": round(held, 3),
            "tested": len(rest),
        }
    return made


def intervals_table(made: Mapping[str, Mapping[str, float | int]]) -> str:
    """Return the table of the intervals."""
    lines = [
        [
            name,
            str(each["rows"]),
            f"{each['low']:.2f} to {each['high']:.2f}",
            f"{each['held']:.0%} of {each['tested']:,}",
        ]
        for name, each in made.items()
    ]
    return markdown_table(["family", "made of rows", "measured over forecast", "holds of other rows"], lines)


def files(folder: Path) -> list[Path]:
    """Return the JSON files of a folder, and of those in it."""
    return sorted([*folder.glob("*.json"), *folder.glob("*/*.json")])


def _card_of(path: Path) -> str:
    content = json.loads(path.read_bytes())
    return str(content.get("device", "")) if isinstance(content, dict) else ""


def kind_of(path: Path) -> str:
    """Return what a file holds: ``sweep``, ``steps``, ``timm`` or, where nothing here reads it, ``other``."""
    content = json.loads(path.read_bytes())
    if isinstance(content, dict):
        rows = content.get("rows")
        if isinstance(rows, list) and rows and isinstance(rows[0], dict) and "layout" in rows[0]:
            return "timm"
        return "sweep" if "ops" in content else "steps" if "steps" in content else "other"
    return "steps" if content and isinstance(content[0], dict) and "kernel_ms" in content[0] else "other"

"""How far forecasts of time may be off: what measurements of cards showed of rows that nothing was fitted to.

``uncertainty.json`` has for each family of kernels, and for whole steps, the tenth and the ninetieth
percentile of the measured time over the forecast: eight of ten cases lie between them.
``python -m benchmarks.clock_error FOLDER --write-uncertainty`` writes it, and says how many cases of others
they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("uncertainty.json")
SHARE = 0.8
"""How many of the cases an interval holds."""

# The families of measurements that stand for a family of ops; the widest of them counts. What no measurement
# stands for has the widest of all.
_MEASURED: Mapping[str, tuple[str, ...]] = {
    "matmul": ("half GEMM", "float GEMM"),
    "attention": ("half GEMM", "float GEMM"),
    "convolution": ("convolution", "convolution gradient"),
    "elementwise": ("elementwise",),
    "copy": ("elementwise",),
    "factory": ("elementwise",),
    "optimizer": ("elementwise",),
    "normalisation": ("norm and softmax",),
    "reduction": ("norm and softmax",),
    "softmax": ("norm and softmax",),
    "scan": ("norm and softmax",),
    "loss": ("norm and softmax",),
}
CONVNETS, TRANSFORMERS = "convnet steps", "transformer steps"
# From which share of the time on a program counts as a convnet or a transformer: measured are whole steps.
_CONVOLUTIONS, _PRODUCTS = 0.1, 0.2


class Range(NamedTuple):
    """Measured time over forecast: of ten cases one is below ``low``, one above ``high``."""

    low: float
    high: float


class Interval(NamedTuple):
    """Seconds that hold :data:`SHARE` of the cases, and whose measurements say so."""

    low: float
    high: float
    source: str


@cache
def ranges() -> Mapping[str, Range]:
    """Return the range of each family that was measured."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Range(each["low"], each["high"]) for name, each in content["families"].items()}


def range_of(family: str) -> Range:
    """Return the range of a family of ops, as ``matmul`` or ``elementwise``."""
    known = ranges()
    found = [known[name] for name in _MEASURED.get(family, tuple(known)) if name in known]
    return Range(min(each.low for each in found), max(each.high for each in found))


def of_step(seconds: float, by_family: Mapping[str, float]) -> Interval:
    """Return the interval of a forecast.

    Args:
        seconds: the forecast.
        by_family: device time by family of ops, in any unit: what kind of program it is.
    """
    total = sum(by_family.values())
    shares = {family: each / total for family, each in by_family.items()} if total > 0 else {}
    if shares.get("convolution", 0.0) >= _CONVOLUTIONS:
        return _scaled(seconds, ranges()[CONVNETS], f"{CONVNETS} of cards that were measured")
    if shares.get("matmul", 0.0) + shares.get("attention", 0.0) >= _PRODUCTS:
        return _scaled(seconds, ranges()[TRANSFORMERS], f"{TRANSFORMERS} of cards that were measured")
    # Errors of a family go together: the ends add up.
    parts = {family: range_of(family) for family in shares}
    low = sum(share * parts[family].low for family, share in shares.items()) if shares else 1.0
    high = sum(share * parts[family].high for family, share in shares.items()) if shares else 1.0
    return _scaled(seconds, Range(low, high), "kernels of cards that were measured")


def _scaled(seconds: float, range_: Range, source: str) -> Interval:
    return Interval(seconds * range_.low, seconds * range_.high, source)

"""Words of a plan that both its table and its page have."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

# The largest factor that is tried: beyond it memory that does not grow with the batch would decide.
MAX_TIMES = 1000


def values_text(reads: Mapping[str, int]) -> str:
    """Return how many values the program read by line that a device which computes nothing does not have."""
    count = sum(reads.values())
    lines = ", ".join(list(reads)[:3]) + (", …" if len(reads) > 3 else "")
    values = f"{count} value{'s' if count > 1 else ''}"
    return f"the program read {values} that the device does not have, and got 0 (at {lines})"


def reads_text(found: dict[str, Any]) -> str:
    """Return what a reader of a plan must know of values that the program read; "" if it read none."""
    if not found["value_reads"]:
        return ""
    text = f"{values_text(found['value_reads'])}: where it branches on one, the plan may be too low"
    if found["is_cut_short"]:
        steps = len(found["step_seconds"])
        text += (
            f". It ended by itself after {steps} step{'' if steps == 1 else 's'}, perhaps because of that: "
            "no larger batch is advised, as later steps and an optimizer's state may be missing"
        )
    return text


def headline_text(found: dict[str, Any]) -> str:
    """Return how long the program takes, in words."""
    from torch_loom.image.report import duration

    steps, forwards = found["step_seconds"], found["forward_seconds"]
    if found["is_cut_short"] and not steps:
        return f"it ended before it made a step, after {duration(found['seconds'])}"
    text = ("out of memory after " if found["out_of_memory"] else "") + duration(found["seconds"])
    if steps:
        return f"{text}, {duration(steps[-1])} for the last of {len(steps)} steps"
    if forwards:
        return f"{text}, {duration(statistics.median(forwards))} for one of {len(forwards)} forwards (median)"
    return text


def interval_text(found: dict[str, Any]) -> str:
    """Return how far the time may be off, in words; "" if no time is known."""
    from torch_loom.image.report import duration

    interval = found["interval"]
    if interval is None or found["seconds"] <= 0:
        return ""
    of = "that step" if found["step_seconds"] else "that forward" if found["forward_seconds"] else "that"
    return (
        f"{interval['share']:.0%} likely: {of} takes {duration(interval['low'])} to "
        f"{duration(interval['high'])} on the card, as {interval['source']}"
    )


def busy_text(found: dict[str, Any]) -> str:
    """Return how much of the last step's time devices need, in words; "" if that is not known."""
    from torch_loom.image.report import duration

    steps, busy = found["step_seconds"], found["step_busy_seconds"]
    if not steps or len(busy) < len(steps):
        return ""
    waits = steps[-1] - busy[-1]
    return f"of the last step devices run {duration(busy[-1])} and wait {duration(waits)} for the host"


def collectives_text(found: dict[str, Any]) -> str:
    """Return what collectives take, in words."""
    from torch_loom.image.report import duration

    calls = sum(each["calls"] for each in found["collectives"])
    took = found["seconds_by_family"].get("collective", 0.0)
    return (
        f"{calls} collectives and messages take {duration(took)}, {duration(found['exposed_seconds'])} of it "
        "while nothing else runs"
    )


def size_text(size_bytes: float) -> str:
    """Return bytes with a unit, to three digits."""
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size_bytes) >= step:
            digits = ".3g" if size_bytes < 999 * step else ".0f"
            return f"{size_bytes / step:{digits}} {unit}"
    return f"{size_bytes:.0f} B"


def batch_text(found: dict[str, Any]) -> str:
    """Return how large a batch fits, in words; "" if that is not known."""
    factor = found["batch_factor"]
    if factor is None or found["out_of_memory"]:
        return ""
    if factor <= 1:
        return "a batch that is much larger would not fit, if activations grow with it"
    about = "" if factor >= MAX_TIMES else "about "
    return f"a batch {about}{times_text(factor)} times as large would fit, if activations grow with it"


def times_text(factor: float) -> str:
    """Return how many times something fits: two digits, rounded down, and no more than a plan can tell."""
    if factor >= MAX_TIMES:
        return f"more than {MAX_TIMES:,}"
    if factor < 10:
        return f"{math.floor(factor * 10) / 10:.1f}"
    step = 10 ** (math.floor(math.log10(factor)) - 1)
    return f"{factor // step * step:,.0f}"

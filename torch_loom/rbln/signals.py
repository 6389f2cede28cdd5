"""What ``torch.rbln.explain`` counts, by the vendor's names, out of what ``torch.loom.explain`` finds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torch_loom import _C
from torch_loom.device._core.first_use import is_initialized
from torch_loom.device._explain.findings import Finding

# The vendor's places where data passes through the host. Here copies between devices and within one do not;
# the two that a program can bring about are filled.
BOUNCES = (
    "copy_d2d_host_bounce",
    "copy_h2d_staging",
    "copy_h2d_noncontig_dst",
    "strided_v2v_cpu_fallback",
    "v2v_batch_to_per_entry",
    "host_batch_to_per_entry",
)
_BOUNCE_OF_KIND = {"host_round_trip": "copy_d2d_host_bounce", "pageable_copy": "copy_h2d_staging"}
_TO_DEVICE = "to the device"

RESIDENCY = ("src_not_on_device", "src_device_only_real_d2h", "src_synced_host_served")

REMEDIES: Mapping[str, str] = {
    "copy_d2d_host_bounce": "data of the device went to the host and came back: do that part on the device, "
    "or keep the tensor there and copy out what is read only",
    "copy_h2d_staging": "a copy to the device came from memory that is not pinned: pin_memory(), or "
    "torch.rbln.huge_host_empty()",
    "copy_h2d_noncontig_dst": "a copy to the device wrote into strides: copy into a contiguous tensor first",
    "strided_v2v_cpu_fallback": "a copy between strides ran on the host: make one side contiguous",
    "v2v_batch_to_per_entry": "copies within the device were issued one by one: give them as one list",
    "host_batch_to_per_entry": "copies of a list were issued one by one: their places must not overlap",
    "cpu_fallback": "the chip does not do the op, or not in the dtype: cast to one of its dtypes, use an op "
    "of its list (docs/supported_ops.md), or leave to the host what belongs there",
    "recompile": "a graph was compiled: a first time is due, again and again are changing shapes: pad them, "
    "or mark them dynamic",
    "src_not_on_device": "the source had no device memory yet: torch.rbln.bind_device_memory() takes it",
    "src_device_only_real_d2h": "the source was on the device alone and was copied out",
    "src_synced_host_served": "the source was on both sides: nothing moved",
}
SHORT: Mapping[str, str] = {
    "copy_d2d_host_bounce": "keep it on the device",
    "copy_h2d_staging": "pin the source",
    "cpu_fallback": "a dtype or op of the chip's",
    "recompile": "steady shapes",
}


def size(num_bytes: float) -> str:
    """Return bytes for people."""
    for unit in ("B", "KB", "MB"):
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.2f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.2f} GB"


def duration(ns: float) -> str:
    """Return nanoseconds for people."""
    for limit, unit, scale in ((1e6, "us", 1e3), (1e9, "ms", 1e6)):
        if ns < limit:
            return f"{ns / scale:.3f}{unit}"
    return f"{ns / 1e9:.3f}s"


def bounces(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Return how often data passed through the host, and how many bytes, by place."""
    found = {name: {"count": 0, "bytes": 0} for name in BOUNCES}
    for finding in findings:
        if name := _bounce_of(finding):
            found[name]["count"] += finding.count
            found[name]["bytes"] += finding.bytes
    return found


def _bounce_of(finding: Finding) -> str | None:
    if finding.kind == "pageable_copy" and _TO_DEVICE not in finding.detail:
        return None
    return _BOUNCE_OF_KIND.get(finding.kind)


def fallbacks(findings: Iterable[Finding]) -> tuple[dict[str, int], dict[str, int]]:
    """Return how often each op was not native, the most frequent first, and for which reasons."""
    ops: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for finding in findings:
        if finding.kind in ("fallback_op", "fallback_dtype"):
            reason = "op-not-native" if finding.kind == "fallback_op" else "dtype-not-fp16"
            ops[finding.op] = ops.get(finding.op, 0) + finding.count
            reasons[reason] = reasons.get(reason, 0) + finding.count
    return dict(sorted(ops.items(), key=lambda item: -item[1])), reasons


def places(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the first place of each op and bounce in the program: ``file:line(function) <- …``."""
    found: dict[str, str] = {}
    for finding in findings:
        name = _bounce_of(finding)
        if name is None and finding.kind in ("fallback_op", "fallback_dtype"):
            name = finding.op
        if name is not None and finding.stack:
            frames = (f"{f.filename}:{f.lineno}({f.name})" for f in reversed(finding.stack))
            found.setdefault(name, " <- ".join(frames))
    return found


def host_threads() -> dict[str, Any]:
    """Return how many threads there are, or may be, for how many cores."""
    cores = len(os.sched_getaffinity(0))
    own = len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").is_dir() else 0
    found = {"cores": cores, "torch_threads": torch.get_num_threads(), "proc_threads": own}
    most = max(found["torch_threads"], own)
    return {**found, "intended_threads": most, "oversubscribed": most > cores}


class Memory:
    """Device memory, of all devices together, from a point in time on."""

    def __init__(self) -> None:
        self._moves, self._moved = self._sums()

    @staticmethod
    def _indices() -> Sequence[int]:
        return range(_C.device_count()) if is_initialized() else ()

    def _sums(self) -> tuple[int, int]:
        found = [_C.memory_stats(index) for index in self._indices()]
        return (
            sum(each["lazy.materializations"] for each in found),
            sum(each["lazy.materialized_bytes"] for each in found),
        )

    def pushed(self) -> dict[str, int]:
        """Return what has moved from the host to the device since, because an op needed it there."""
        moves, moved = self._sums()
        return {"count": moves - self._moves, "bytes": moved - self._moved}

    def gauge(self) -> dict[str, int]:
        """Return what the allocators hold, and the most that they held."""
        found = [_C.memory_stats(index) for index in self._indices()]
        return {
            "current_bytes": sum(each["reserved.current"] for each in found),
            "peak_bytes": sum(each["reserved.peak"] for each in found),
        }


def notes(dump: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what was counted with what helps against it, in the order of the report."""
    by_site = dump["hidden_host_bounce"]["by_site"]
    fired = [f"host_bounce/{name}" for name in BOUNCES if by_site[name]["count"]]
    by_reason = dump["runtime_residency"]["by_reason"]
    fired += [f"runtime/v2v_slow:{name}" for name in RESIDENCY if by_reason[name]["count"]]
    fired += ["dispatch/cpu_fallback"] if dump["dispatch"]["cpu_fallback"] else []
    fired += ["dispatch/recompile"] if dump["dispatch"]["recompile_miss"] else []
    return [{"signal": name, "fix": REMEDIES[cause_of(name)]} for name in fired]


def cause_of(signal: str) -> str:
    """Return the key of :data:`REMEDIES` in a signal's name, such as ``host_bounce/copy_h2d_staging``."""
    return signal.rpartition("/")[2].rpartition(":")[2]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[int]) -> list[str]:
    """Return the lines of a table; the columns ``right`` stand to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    aligned = set(right)

    def line(cells: Sequence[str]) -> str:
        parts = (
            cell.rjust(width) if place in aligned else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return [rule, line(headings), rule, *map(line, rows), rule]

"""Replays allocator traces of a real GPU through the caching allocator: the same peaks must come out.

The file is gzipped JSON: a list of cases, each with "events" and "stats" and with whatever names it ("model",
"dtype", "mode", "shape"). Events: ["a", bytes asked for], ["f", index of the "a" event whose block is freed],
["s", bytes]: the GPU's allocator took a segment for the next "a"; ["segment_free", bytes]: it gave one back.
"stats" holds what torch.cuda.memory_stats() said at the end. One stream, no kernels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch  # noqa: F401 (before the extension, which needs its libraries)
from torch_loom._C_testing import allocator

from benchmarks._common import write_docs
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.allocator_replay"
MIB = 1 << 20
# An H200's 143,771 MiB, the device that the traces in the project's reference material come from.
DEVICE_MIB = 143_771
MAX_FILE_BYTES = 4 << 30  # of JSON; a longer file is refused rather than read
MAX_EVENTS = 50_000_000
RECORDED = ("allocated_bytes.all.peak", "reserved_bytes.all.peak", "segment.all.peak")


class TraceError(ValueError):
    """The trace file does not have the layout; the message names case and event."""


@dataclass(frozen=True)
class Case:
    """One recorded run."""

    name: str
    events: list[tuple[str, int]]
    peak_allocated: int
    peak_reserved: int
    segments: int


@dataclass(frozen=True)
class Result:
    """What the replay of a case came to: bytes, bytes, a count, at their peaks."""

    case: Case
    peak_allocated: int
    peak_reserved: int
    segments: int

    @property
    def is_exact(self) -> bool:
        """Whether all three figures are the recorded ones."""
        return (
            self.peak_allocated == self.case.peak_allocated
            and self.peak_reserved == self.case.peak_reserved
            and self.segments == self.case.segments
        )

    @property
    def allocated_error(self) -> float:
        """How far peak allocated is off, as a share of the recorded one."""
        return _error(self.peak_allocated, self.case.peak_allocated)

    @property
    def reserved_error(self) -> float:
        """How far peak reserved is off, as a share of the recorded one."""
        return _error(self.peak_reserved, self.case.peak_reserved)


def _error(ours: int, recorded: int) -> float:
    return abs(ours - recorded) / recorded if recorded else float(ours != 0)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_events(where: str, events: object) -> list[tuple[str, int]]:
    if not isinstance(events, list):
        raise TraceError(f"{where}: events must be a list, got {type(events).__name__}")
    if len(events) > MAX_EVENTS:
        raise TraceError(f"{where}: at most {MAX_EVENTS} events, got {len(events)}")
    live: set[int] = set()
    checked: list[tuple[str, int]] = []
    for number, event in enumerate(events):
        at = f"{where}, event {number}"
        if not isinstance(event, list) or len(event) != 2:
            raise TraceError(f"{at}: must be [kind, number], got {event!r:.100}")
        kind, value = event
        if kind not in ("a", "f", "s", "segment_free"):
            raise TraceError(f"{at}: kind must be 'a', 'f', 's' or 'segment_free', got {kind!r:.100}")
        if not _is_count(value):
            raise TraceError(f"{at}: number must be an int of 0 or more, got {value!r:.100}")
        if kind == "a":
            if value >= 1 << 62:
                raise TraceError(f"{at}: bytes must be below 2**62, got {value}")
            live.add(number)
        elif kind == "f":
            if value not in live:
                raise TraceError(f"{at}: frees event {value}, which is no live allocation before it")
            live.remove(value)
        checked.append((kind, value))
    return checked


def _check_case(number: int, case: object) -> Case:
    where = f"case {number}"
    if not isinstance(case, dict):
        raise TraceError(f"{where}: must be an object, got {type(case).__name__}")
    parts = [str(case[key]) for key in ("model", "mode", "dtype", "shape") if key in case]
    name = " ".join(parts)[:80] or where
    where = f"{where} ({name})" if parts else where
    for key in ("events", "stats"):
        if key not in case:
            raise TraceError(f"{where}: has no {key!r}")
    stats = case["stats"]
    if not isinstance(stats, dict):
        raise TraceError(f"{where}: stats must be an object, got {type(stats).__name__}")
    for key in RECORDED:
        if not _is_count(stats.get(key)):
            raise TraceError(
                f"{where}: stats[{key!r}] must be an int of 0 or more, got {stats.get(key)!r:.100}"
            )
    return Case(name, _check_events(where, case["events"]), *(stats[key] for key in RECORDED))


def read(path: Path) -> list[Case]:
    """Reads and checks a trace file.

    Raises:
        TraceError: it is no gzipped JSON, too large, or does not have the layout.
        OSError: it cannot be read.
    """
    try:
        with gzip.open(path) as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise TraceError(f"{path}: more than {MAX_FILE_BYTES} bytes of JSON")
        cases: Any = json.loads(text)
    except (
        gzip.BadGzipFile,
        EOFError,
        zlib.error,
        UnicodeDecodeError,
        json.JSONDecodeError,
        RecursionError,
    ) as error:
        raise TraceError(f"{path}: not gzipped JSON: {error}") from error
    if not isinstance(cases, list) or not cases:
        raise TraceError(f"{path}: must be a list of cases")
    return [_check_case(number, case) for number, case in enumerate(cases)]


def replay(case: Case, device_bytes: int) -> Result:
    """Replays one case on a fresh allocator.

    Raises:
        TraceError: the device has no memory for an allocation of the trace.
    """
    fresh = allocator.Allocator("null", device_bytes)
    addresses: dict[int, int] = {}
    previous = ""
    for number, (kind, value) in enumerate(case.events):
        if kind == "a":
            try:
                addresses[number] = fresh.allocate(value)
            except MemoryError as error:
                raise TraceError(f"{case.name}, event {number}: {error}") from error
        elif kind == "f":
            fresh.deallocate(addresses.pop(value))
        elif kind == "segment_free" and previous != "segment_free":
            # One flush gives back several segments, whether the program asked for it or memory had run out.
            fresh.empty_cache()
        previous = kind
    stats = fresh.stats()
    return Result(case, *(stats[key] for key in RECORDED))


def docs_body(results: Sequence[Result], path: Path) -> str:
    """Returns the section for docs/performance.md."""
    header = ["case", "peak allocated", "error", "peak reserved", "error", "segments", "difference", "exact"]
    table = [
        [
            result.case.name,
            f"{result.peak_allocated / MIB:,.2f}",
            f"{100 * result.allocated_error:.2f}%",
            f"{result.peak_reserved / MIB:,.0f}",
            f"{100 * result.reserved_error:.2f}%",
            str(result.segments),
            str(result.segments - result.case.segments),
            "yes" if result.is_exact else "no",
        ]
        for result in results
    ]
    return (
        f"Replayed `{path.name}`, recorded on an NVIDIA H200: what the allocator comes to, in MiB, and how "
        "far that is from what the H200 reported. Targets: exact on 80% of the cases, peak allocated within "
        "0.2% everywhere, peak reserved within 1% on nine of ten.\n\n"
        f"{summary(results)}\n\n{markdown_table(header, table)}"
    )


def summary(results: Sequence[Result]) -> str:
    """Returns the last line of the report."""
    exact = sum(result.is_exact for result in results)
    worst = max(result.reserved_error for result in results)
    return f"exact {exact}/{len(results)}, worst reserved error {100 * worst:.2f}%"


def missed_targets(results: Sequence[Result]) -> list[str]:
    """Returns what falls short, in words."""
    missed = []
    if sum(result.is_exact for result in results) < 0.8 * len(results):
        missed.append("fewer than 80% of the cases are exact")
    if any(result.allocated_error > 0.002 for result in results):
        missed.append("peak allocated is off by more than 0.2%")
    if sum(result.reserved_error <= 0.01 for result in results) < 0.9 * len(results):
        missed.append("peak reserved is off by more than 1% in more than a tenth of the cases")
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the replay; returns the exit status: 1 for missed targets with --check, 2 for a bad file."""
    parser = argparse.ArgumentParser(description="Allocator traces of a GPU, replayed.")
    parser.add_argument("trace", type=Path, metavar="TRACE.json.gz")
    parser.add_argument(
        "--device-mib", type=int, default=DEVICE_MIB, help="the device's memory in MiB (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--write-docs", action="store_true", help="write the result into docs/performance.md")
    options = parser.parse_args(arguments)
    if options.device_mib < 1:
        parser.error(f"--device-mib must be 1 or more, got {options.device_mib}")
    results = []
    try:
        for case in read(options.trace):
            result = replay(case, options.device_mib * MIB)
            results.append(result)
            print(
                f"{case.name:<45} allocated {result.peak_allocated:>13} recorded {case.peak_allocated:>13}  "
                f"reserved {result.peak_reserved:>13} recorded {case.peak_reserved:>13}  "
                f"segments {result.segments:>4} recorded {case.segments:>4}  "
                f"{'exact' if result.is_exact else 'differs'}",
                flush=True,
            )
    except (TraceError, OSError) as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 2
    if options.write_docs:
        write_docs(
            "allocator_replay", "Allocator, against a GPU's", docs_body(results, options.trace), COMMAND
        )
    missed = missed_targets(results)
    for text in missed:
        print(f"missed: {text}")
    print(summary(results), flush=True)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

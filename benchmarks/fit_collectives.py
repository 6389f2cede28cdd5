"""Fits the protocols of collectives to NCCL's times, and writes ``torch_loom/chips/collectives.json``.

    python -m benchmarks.fit_collectives FOLDER [--check] [--write-docs]

Read are ``FOLDER/*_collectives.json``: rows of an op, ``[ranks, bytes]``, milliseconds, and how many of the
ranks stand on one node. Half of the rows are fitted, by a hash of what each timed; the report is of both
halves. ``--check`` fits nothing: it says how far off the written protocols are.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchmarks._common import plain_parser, write_docs
from torch_loom import chips
from torch_loom.chips import topologies
from torch_loom.chips.collectives import FABRICS, FILE, Protocol, Route, protocols, route_of
from torch_loom.chips.cost.fit import levenberg
from torch_loom.chips.cost.sweep import is_fitted
from torch_loom.chips.fitted import rounded

COMMAND = "python -m benchmarks.fit_collectives"
# Beyond this error a row counts linearly: NCCL chooses among more protocols than are told apart here.
ROBUST = 0.04
# Nanoseconds that are nothing, as is such a share.
LEAST = 0.1
# Of each fabric: where the fit begins. One protocol for short collectives, one or two for long ones.
STARTS = {
    "switched": (
        Protocol(12e3, 300.0, 0.1),
        Protocol(30e3, 800.0, 0.4, 5e3, 1e4),
        Protocol(38e3, 1200.0, 0.8, 4e5, 8e5),
    ),
    "mesh": (Protocol(10e3, 3e3, 0.5), Protocol(15e3, 5e3, 0.9, 1e4, 1e5)),
    "message": (Protocol(12e3, 1.0, 0.9, 1e4, 1e5),),
    "network": (Protocol(40e3, 2e4, 0.25), Protocol(100e3, 5e4, 0.45, 1e5, 1e6)),
    "network_message": (Protocol(25e3, 1.0, 0.5), Protocol(50e3, 1.0, 0.62, 1e5, 1e6)),
}


class Row(NamedTuple):
    """A collective that was timed, by what it went, and whether it is fitted."""

    source: str
    route: Route
    took_ns: float
    is_fitted: bool


class Source(NamedTuple):
    """What the cards of a file were: the chip, and the cluster of those that stand on several nodes."""

    chip: str
    topology: str | None = None


SOURCES = {
    "vidur_a100_dgx": Source("a100", "a100-ethernet"),
    "vidur_a100_pairwise_nvlink": Source("a100"),
    "vtrain_a100": Source("a100"),
    "vtrain_v100": Source("v100"),
}


def read(folder: Path) -> list[Row]:
    """Return the rows of a folder's files whose cards and ways are known."""
    rows = []
    for name, (chip_name, topology_name) in SOURCES.items():
        path = folder / f"{name}_collectives.json"
        if not path.exists():
            continue
        chip = chips.load(chip_name)
        for row in json.loads(path.read_text(encoding="utf-8"))["ops"]:
            ranks, size_bytes = row["shape"]
            on_node = row.get("devices_per_node", ranks)
            key = f"{name}:{row['op']}:{ranks}:{on_node}:{size_bytes}"
            layout = topologies.Layout(ranks)
            op = "send" if row["op"] == "send_recv" else row["op"]
            route = route_of(chip, op, size_bytes, layout)
            if on_node != ranks:
                if topology_name is None:
                    continue  # a network that nobody has described
                one = topologies.load(topology_name)
                nics = min(one.nics_per_node, on_node)
                layout = topologies.Layout(ranks, ranks // on_node, on_node, nics, one.nic_gbps)
                route = route_of(chip, op, size_bytes, layout)
            elif name == "vidur_a100_pairwise_nvlink" and ranks > 2:
                # Pairs that meet over PCIe: as chips with few links do.
                assert route is not None
                route = route._replace(fabric="mesh", gbps=chip.host_link_gbps)
            if route is not None:
                source = f"{name} {row['op']} {ranks}x{on_node}"
                rows.append(Row(source, route, row["ms"] * 1e6, is_fitted(key)))
    return rows


def forecast(found: Sequence[Protocol], rows: Sequence[Row]) -> Any:
    """Return nanoseconds for each row, of one fabric."""
    moved, hops, gbps = (np.array([getattr(row.route, name) for row in rows]) for name in Route._fields[1:])
    return np.min([one.time_ns(moved, hops, gbps) for one in found], axis=0)


def fit(start: Sequence[Protocol], rows: Sequence[Row]) -> tuple[Protocol, ...]:
    """Return the protocols of a fabric that the rows show."""
    took = np.log(np.array([row.took_ns for row in rows]))
    width = len(Protocol._fields)
    # A source of few rows counts nearly as one of many.
    counts = Counter(row.source for row in rows)
    weights = np.array([(len(rows) / len(counts) / counts[row.source]) ** 0.2 for row in rows])

    def protocols_of(vector: Any) -> list[Protocol]:
        found = [Protocol(*np.exp(part)) for part in vector.reshape(-1, width)]
        return [one._replace(link_share=min(one.link_share, 1.0)) for one in found]

    def residuals(vector: Any) -> Any:
        errors = np.log(forecast(protocols_of(vector), rows)) - took
        size = np.abs(errors)
        robust = np.sqrt(ROBUST * (2 * np.maximum(size, ROBUST) - ROBUST))
        return weights * np.where(size > ROBUST, np.sign(errors) * robust, errors)

    begin = np.log(np.maximum(np.array(start, dtype=float), 1e-3)).ravel()
    best = min(
        (levenberg(residuals, begin + shift, steps=80) for shift in _shifts(len(begin))),
        key=lambda one: one[1],
    )
    # What no row shows has gone towards zero.
    return tuple(
        Protocol(*(rounded(value) if value >= LEAST else 0.0 for value in one))._replace(
            ramp_ns_of_links=max(1.0, rounded(one.ramp_ns_of_links))
        )
        for one in protocols_of(best[0])
    )


def _shifts(size: int) -> list[Any]:
    random = np.random.default_rng(0)
    return [np.zeros(size), *(random.normal(0.0, 0.4, size) for _ in range(11))]


def errors(rows: Sequence[Row]) -> dict[str, tuple[float, int]]:
    """Return the mean relative error by source, and of how many rows."""
    found = defaultdict(list)
    for fabric in FABRICS:
        mine = [row for row in rows if row.route.fabric == fabric]
        if mine:
            for row, took_ns in zip(mine, forecast(protocols()[fabric], mine), strict=True):
                found[row.source].append(abs(took_ns / row.took_ns - 1))
    return {name: (statistics.mean(each), len(each)) for name, each in sorted(found.items())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 if rows that were not fitted are off by more than 9% in the mean."""
    parser = plain_parser(__doc__, chip=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="fit nothing, report alone")
    options = parser.parse_args(arguments)
    rows = read(options.folder)
    if not options.check:
        found = {}
        for fabric in FABRICS:
            fitted = [row for row in rows if row.route.fabric == fabric and row.is_fitted]
            found[fabric] = [one._asdict() for one in fit(STARTS[fabric], fitted)]
        content = {"source": f"{COMMAND}: half of {', '.join(SOURCES)}", "protocols": found}
        FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        protocols.cache_clear()
    fitted, others = (errors([row for row in rows if row.is_fitted == half]) for half in (True, False))
    for name, (error, count) in others.items():
        print(f"{name:45} {fitted[name][0]:7.1%} fitted, {error:7.1%} of {count} others")
    mean = sum(error * count for error, count in others.values()) / sum(count for _, count in others.values())
    print(f"mean of what was not fitted: {mean:.1%}")
    if options.write_docs:
        body = "\n".join(
            ["| timings | rows | mean error |", "|---|---|---|"]
            + [f"| {name} | {count} | {error:.1%} |" for name, (error, count) in others.items()]
            + [f"\nRows that were not fitted are off by {mean:.1%} in the mean (target 9%)."]
        )
        write_docs("fit_collectives", "Collectives beside NCCL's times", body, COMMAND)
    return 0 if mean <= 0.09 else 1


if __name__ == "__main__":
    sys.exit(main())

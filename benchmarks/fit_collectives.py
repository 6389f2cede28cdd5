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
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import plain_parser, write_docs
from torch_loom import chips
from torch_loom.chips import topologies
from torch_loom.chips.collectives import FABRICS, FILE, protocols
from torch_loom.chips.fit_collectives import STARTS, Row, fit, forecast, routed

COMMAND = "python -m benchmarks.fit_collectives"


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
# Whose links join two cards each; pairs meet over PCIe.
PAIRED = "vidur_a100_pairwise_nvlink"


def read(folder: Path) -> list[Row]:
    """Return the rows of a folder's files whose cards and ways are known."""
    rows = []
    for name, (chip_name, topology_name) in SOURCES.items():
        path = folder / f"{name}_collectives.json"
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))["ops"]
            topology = topologies.load(topology_name) if topology_name else None
            rows += routed(content, name, chips.load(chip_name), topology, name == PAIRED)
    return rows


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
            found[fabric] = [each._asdict() for each in fit(STARTS[fabric], fitted)]
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

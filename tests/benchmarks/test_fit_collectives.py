"""The fit of collectives: it finds protocols that timings were made with."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from benchmarks import fit_collectives
from torch_loom.chips import collectives
from torch_loom.chips.collectives import Protocol, Route

SHORT, LONG = Protocol(20e3, 500.0, 0.1), Protocol(60e3, 700.0, 0.8)


def made(fabric: str) -> list[fit_collectives.Row]:
    rows = []
    for ranks in (2, 4, 8):
        for size in range(10, 30):
            route = Route(fabric, float(1 << size), 2 * (ranks - 1), 300.0)
            took_ns = min(one.time_ns(*route[1:]) for one in (SHORT, LONG))
            rows.append(fit_collectives.Row(f"made {ranks}", route, took_ns, is_fitted=size % 2 == 0))
    return rows


@pytest.mark.long
def test_protocols_are_found_again() -> None:
    rows = made("switched")
    found = fit_collectives.fit(fit_collectives.STARTS["switched"], [row for row in rows if row.is_fitted])
    forecast = fit_collectives.forecast(found, rows)
    errors = [abs(took_ns / row.took_ns - 1) for row, took_ns in zip(rows, forecast, strict=True)]
    assert statistics.mean(errors) < 0.02
    assert forecast[-1] == pytest.approx(rows[-1].took_ns, rel=0.02)


def test_what_is_shipped_has_been_fitted() -> None:
    content = json.loads(collectives.FILE.read_text(encoding="utf-8"))
    assert content["source"].startswith(fit_collectives.COMMAND)
    assert set(content["protocols"]) == set(collectives.FABRICS)


def test_rows_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"op": "all_reduce", "shape": [ranks, 1 << 24], "devices_per_node": on_node, "ms": 1.0}
        for ranks, on_node in ((8, 8), (16, 8))
    ]
    path = tmp_path / "vidur_a100_dgx_collectives.json"
    path.write_text(json.dumps({"ops": rows}), encoding="utf-8")
    within, across = (row.route for row in fit_collectives.read(tmp_path))
    assert (within.fabric, within.gbps, within.hops) == ("switched", 300.0, 14)
    # Two nodes: one level of a tree and seven hops within a node, up and down.
    assert (across.fabric, across.gbps, across.hops) == ("network", 50.0, 16)

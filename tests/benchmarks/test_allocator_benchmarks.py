"""The allocator benchmarks: a bad trace file is one clear error, a good one is replayed and compared."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import allocator_replay, allocator_speed

MIB = 1 << 20


def case(events: list[Any], allocated: int, reserved: int, segments: int) -> dict[str, Any]:
    figures = (allocated, reserved, segments)
    return {
        "model": "m",
        "events": events,
        "stats": dict(zip(allocator_replay.RECORDED, figures, strict=True)),
    }


# 3 MiB, and 18 MiB beside it; then the first is freed and its place taken by 2 MiB.
EVENTS = [["s", 20 * MIB], ["a", 3 * MIB], ["s", 18 * MIB], ["a", 18 * MIB], ["f", 1], ["a", 2 * MIB]]
GOOD = case(EVENTS, 21 * MIB, 38 * MIB, 2)


def written(folder: Path, content: object) -> Path:
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    off = case(EVENTS, 21 * MIB, 40 * MIB, 2)
    path = written(tmp_path, [GOOD, off])
    assert allocator_replay.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "exact 1/2, worst reserved error 5.00%"
    assert lines[0].endswith("exact")
    assert lines[1].endswith("differs")
    assert allocator_replay.main([str(path), "--check"]) == 1


def test_given_back_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [["a", 12 * MIB], ["f", 0], ["segment_free", 12 * MIB], ["a", 14 * MIB]]
    path = written(tmp_path, [case(events, 14 * MIB, 14 * MIB, 1)])
    assert allocator_replay.main([str(path), "--check"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "exact 1/1, worst reserved error 0.00%"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "must be a list of cases"),
        ({"events": []}, "must be a list of cases"),
        ([3], "case 0: must be an object, got int"),
        ([GOOD, {"stats": {}}], "case 1: has no 'events'"),
        ([{"events": []}], "case 0: has no 'stats'"),
        ([{**GOOD, "stats": []}], "case 0 (m): stats must be an object"),
        ([{**GOOD, "stats": {}}], "stats['allocated_bytes.all.peak'] must be an int of 0 or more, got None"),
        ([{**GOOD, "events": "a"}], "case 0 (m): events must be a list, got str"),
        ([{**GOOD, "events": [["a"]]}], "case 0 (m), event 0: must be [kind, number], got ['a']"),
        ([{**GOOD, "events": [["x", 1]]}], "event 0: kind must be"),
        ([{**GOOD, "events": [["a", 1], ["f", 1]]}], "event 1: frees event 1, which is no live allocation"),
        ([{**GOOD, "events": [["a", 1], ["f", 0], ["f", 0]]}], "event 2: frees event 0"),
        ([{**GOOD, "events": [["a", -1]]}], "event 0: number must be an int of 0 or more, got -1"),
        ([{**GOOD, "events": [["a", True]]}], "got True"),
        ([{**GOOD, "events": [["a", 1.5]]}], "got 1.5"),
        ([{**GOOD, "events": [["a", 2**62]]}], "bytes must be below 2**62"),
        ([{**GOOD, "events": [["a", 2**50]]}], "event 0: out of memory. Tried to allocate"),
    ],
)
def test_bad_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, text: str) -> None:
    assert allocator_replay.main([str(written(tmp_path, content))]) == 2
    assert text in capsys.readouterr().err


NOT_TRACES = {
    "nothing": b"",
    "no trace": b"[]",
    "half a list": gzip.compress(b"[[["),
    "too deep": gzip.compress(b"[" * 100_000),
}


@pytest.mark.parametrize("content", NOT_TRACES.values(), ids=NOT_TRACES)
def test_no_trace_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert allocator_replay.main([str(path)]) == 2
    assert "file: " in capsys.readouterr().err
    assert allocator_replay.main([str(tmp_path / "missing")]) == 2


def test_a_truncated_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, [GOOD])
    path.write_bytes(path.read_bytes()[:-9])
    assert allocator_replay.main([str(path)]) == 2
    assert "not gzipped JSON" in capsys.readouterr().err


def test_speed_times_every_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(allocator_speed, "SIZES", {"512 B": 512})
    rows = allocator_speed.measure("loom", rounds=1, pairs=200)
    assert [(row.subject, row.threads) for row in rows] == [
        (subject, threads)
        for threads in (1, 4)
        for subject in ("allocator", "empty loom", "malloc", "empty cpu")
    ]
    assert all(row.ns > 0 for row in rows)
    assert "| 512 B | 4 |" in allocator_speed.docs_body(rows)
    monkeypatch.setattr(allocator_speed, "measure", lambda *_: rows)
    monkeypatch.setattr(allocator_speed, "TARGET_NS", 0.0)
    assert allocator_speed.main(["--quick", "--check", "--json", str(tmp_path / "speed.json")]) == 1
    assert json.loads((tmp_path / "speed.json").read_text())["pair_ns"] == rows[0].ns

"""Ranges and marks: what they return, and that they stand in the profile."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import profile

from torch_loom.device._core.device_index import DEVICE_TYPE

nvtx = torch.loom.nvtx


@pytest.mark.exercises("torch.cuda.nvtx.range_push", "torch.cuda.nvtx.range_pop")
def test_depths() -> None:
    assert [nvtx.range_push("outer"), nvtx.range_push("inner")] == [0, 1]
    depths: list[int] = []
    thread = threading.Thread(target=lambda: depths.append(nvtx.range_push("of its own")))
    thread.start()
    thread.join()
    assert depths == [0]
    assert [nvtx.range_pop(), nvtx.range_pop()] == [1, 0]
    assert [nvtx.range_pop(), nvtx.range_pop()] == [-2, -2]
    assert nvtx.range_push("again") == 0
    assert nvtx.range_pop() == 0


@pytest.mark.exercises(
    "torch.cuda.nvtx.mark",
    "torch.cuda.nvtx.range",
    "torch.cuda.nvtx.range_push",
    "torch.cuda.nvtx.range_start",
    "torch.cuda.nvtx.range_end",
)
def test_wrong_arguments() -> None:
    for function in (nvtx.mark, nvtx.range_push, nvtx.range_start):
        with pytest.raises(TypeError, match="msg must be a str, got int"):
            function(3)
    with pytest.raises(TypeError, match="msg must be a str, got NoneType"), nvtx.range(None):
        pass
    with pytest.raises(KeyError), nvtx.range("{missing}"):
        pass
    assert nvtx.range_push("only") == 0, "what was refused must have left nothing"
    nvtx.range_pop()
    for bad in ("1", 1.0, None, True):
        with pytest.raises(TypeError, match="range_id must be an int"):
            nvtx.range_end(bad)
    with pytest.raises(ValueError, match="got -1"):
        nvtx.range_end(-1)
    nvtx.range_end(1 << 70)


def events_of(prof: profile, path: Path) -> list[dict[str, Any]]:
    prof.export_chrome_trace(str(path))
    return list(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])


def spans(events: list[dict[str, Any]], name: str, category: str) -> list[tuple[float, float]]:
    found = [e for e in events if e.get("name") == name and e.get("cat") == category]
    return [(e["ts"], e["ts"] + e["dur"]) for e in found]


@pytest.mark.exercises("torch.cuda.nvtx.range", "torch.cuda.nvtx.mark")
def test_ranges_in_the_profile(tmp_path: Path) -> None:
    x = torch.ones(64, 64, device=DEVICE_TYPE)

    @nvtx.range("call {} of {name}", 1, name="step")
    def step() -> torch.Tensor:
        return x @ x

    step()  # x is in device memory from here on, under every policy: no upload stands in the profile
    with profile() as prof:
        with nvtx.range("outer"):
            step()
            nvtx.mark("moment")
        with pytest.raises(ZeroDivisionError), nvtx.range("failed"):
            _ = 1 / 0
    events = events_of(prof, tmp_path / "trace.json")
    [outer] = spans(events, "outer", "user_annotation")
    [inner] = spans(events, "call 1 of step", "user_annotation")
    [moment] = spans(events, "moment", "user_annotation")
    assert len(spans(events, "failed", "user_annotation")) == 1
    # They are kept in whole microseconds.
    assert outer[0] - 1 <= inner[0] <= inner[1] <= outer[1] + 1
    assert inner[1] - 1 <= moment[0] == moment[1] <= outer[1] + 1
    [kernel] = spans(events, f"{DEVICE_TYPE}::mm", "kernel")
    for name in ("outer", "call 1 of step"):
        assert spans(events, name, "gpu_user_annotation") == [pytest.approx(kernel, abs=0.01)]
    assert {"outer", "call 1 of step", "moment"} <= {event.name for event in prof.events()}


@pytest.mark.exercises("torch.cuda.nvtx.range_start", "torch.cuda.nvtx.range_end")
def test_range_across_threads(tmp_path: Path) -> None:
    first, second = nvtx.range_start("first"), nvtx.range_start("second")
    assert first != second
    nvtx.range_end(first)
    with profile() as prof:
        crossing = nvtx.range_start("crossing")
        nested = nvtx.range_start("overlapping")
        thread = threading.Thread(target=nvtx.range_end, args=(crossing,))
        thread.start()
        thread.join()
        nvtx.range_end(nested)
        nvtx.range_end(nested)  # it has ended: nothing
        nvtx.range_end(second)  # it began before the profile
        late = nvtx.range_start("late")
    nvtx.range_end(late)
    events = events_of(prof, tmp_path / "trace.json")
    [crossed] = spans(events, "crossing", "user_annotation")
    [other] = spans(events, "overlapping", "user_annotation")
    assert crossed[0] <= other[0] <= crossed[1] <= other[1]
    assert [spans(events, name, "user_annotation") for name in ("first", "second", "late")] == [[], [], []]


@pytest.mark.exercises("torch.cuda.nvtx.range_push", "torch.cuda.nvtx.range_pop")
def test_range_over_the_edge_of_a_profile(tmp_path: Path) -> None:
    x = torch.ones(8, device=DEVICE_TYPE)
    nvtx.range_push("around")
    with profile() as first:
        nvtx.range_push("left open")
        x + 1
    with profile() as second:
        assert nvtx.range_pop() == 1
        x + 1
        nvtx.range_push("whole")
        nvtx.range_pop()
    assert nvtx.range_pop() == 0
    for prof, path in ((first, tmp_path / "1.json"), (second, tmp_path / "2.json")):
        events = events_of(prof, path)
        assert spans(events, "around", "user_annotation") == []
        assert spans(events, "left open", "user_annotation") == []
        # The commands in it were in it all the same.
        assert len(spans(events, "around", "gpu_user_annotation")) == 1
    assert len(spans(events, "whole", "user_annotation")) == 1

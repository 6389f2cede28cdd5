"""What the tests of the profiler read a profile with."""

from __future__ import annotations

import json
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from torch_loom.device._core.device_index import DEVICE_TYPE

ON_DEVICE = getattr(ProfilerActivity, DEVICE_TYPE.upper())
Events = list[dict[str, Any]]


def mm(stream: torch.Stream | None = None) -> None:
    x = torch.ones(32, 32, device=DEVICE_TYPE)
    with stream or torch.loom.current_stream():
        x @ x


_traces: weakref.WeakKeyDictionary[profile, tuple[Any, Events]] = weakref.WeakKeyDictionary()


def trace(prof: profile) -> Events:
    """What stands in a trace that is saved, which PyTorch does once."""
    assert prof.profiler is not None
    results = prof.profiler.kineto_results
    if prof in _traces and _traces[prof][0] is results:
        return _traces[prof][1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        prof.export_chrome_trace(str(path))
        events = list(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])
    _traces[prof] = results, events
    return events


def of(events: Events, category: str) -> Events:
    return [event for event in events if event.get("cat") == category]


def names(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["name"] for event in events]


def kernels(prof: profile) -> list[str]:
    return names(of(trace(prof), "kernel"))


def times_ns(prof: profile, name: str) -> list[tuple[int, int]]:
    """Start and end, since 1970, of what has this name."""
    assert prof.profiler is not None
    assert prof.profiler.kineto_results is not None
    events = prof.profiler.kineto_results.events()
    return [(event.start_ns(), event.end_ns()) for event in events if event.name() == name]


def average(prof: profile, key: str) -> Any:
    [found] = [a for a in prof.key_averages() if a.key == key and a.device_type == DeviceType.CPU]
    return found

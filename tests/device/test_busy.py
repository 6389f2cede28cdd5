"""Keeping a device busy on purpose: _sleep, _busy_wait_for_flag and _clear_flag."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

import torch_loom.device as loom
from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "busy"


@pytest.fixture(autouse=True)
def seen_before() -> None:
    # An op whose result is not known yet would wait for its stream.
    with loom.stream(loom.Stream()):
        for size in (1, 4):
            torch.zeros(size, device="loom").add_(1)
    loom.synchronize()


@pytest.mark.exercises("torch.cuda._sleep")
@pytest.mark.parametrize("of_its_own", [False, True])
def test_the_stream_sleeps_in_its_turn_and_the_host_goes_on(of_its_own: bool) -> None:
    stream = loom.Stream() if of_its_own else loom.default_stream()
    x = torch.zeros(4, device="loom")
    loom.synchronize()
    with loom.stream(stream):
        start = time.monotonic()
        loom._sleep(100_000_000)
        x.add_(1)
        done = stream.record_event()
        assert not done.query()
        stream.synchronize()
    assert time.monotonic() - start >= 0.1  # 1e8 cycles of loom1, which has 1 GHz
    assert x.tolist() == [1, 1, 1, 1]


@pytest.mark.exercises("torch.cuda._sleep")
def test_events_measure_it() -> None:
    begin, end = loom.Event(enable_timing=True), loom.Event(enable_timing=True)
    begin.record()
    loom._sleep(20_000_000)
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 20


@pytest.mark.exercises("torch.cuda._sleep")
def test_a_graph_keeps_it() -> None:
    graph = loom.LoomGraph() if hasattr(loom, "LoomGraph") else loom.CUDAGraph()
    x = torch.zeros(1, device="loom")
    with loom.graph(graph):
        loom._sleep(20_000_000)
        x.add_(1)
    start = time.monotonic()
    graph.replay()
    graph.replay()
    assert x.item() == 2
    assert time.monotonic() - start >= 0.04


@pytest.mark.exercises("torch.cuda._sleep")
def test_bad_cycles() -> None:
    for bad in (1.5, "1", None, True):
        with pytest.raises(TypeError, match="cycles must be an int"):
            loom._sleep(bad)  # type: ignore[arg-type]
    for bad in (-1, 2**63):
        with pytest.raises(ValueError, match="cycles must be 0 to"):
            loom._sleep(bad)
    loom._sleep(0)
    loom.synchronize()


@pytest.mark.exercises("torch.cuda._busy_wait_for_flag", "torch.cuda._clear_flag")
@pytest.mark.parametrize("of_its_own", [False, True])
def test_a_stream_waits_until_the_flag_is_cleared(of_its_own: bool) -> None:
    waiting, other = loom.Stream() if of_its_own else loom.default_stream(), loom.Stream()
    x = torch.zeros(1, device="loom")
    loom.synchronize()
    with loom.stream(waiting):
        loom._busy_wait_for_flag()
        x.add_(1)
    assert not waiting.query()
    with loom.stream(other):
        loom._clear_flag()
    waiting.synchronize()
    assert x.item() == 1


@pytest.mark.exercises("torch.cuda._busy_wait_for_flag", "torch.cuda._clear_flag")
def test_where_nobody_could_clear_the_flag(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "where_nobody_could_clear_the_flag.py", {"TORCH_LOOM_LAUNCH": "blocking"})

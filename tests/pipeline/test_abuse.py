"""Pipelines that are interrupted, killed, and started again and again."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_loom.device as loom
from tests.conftest import PythonRunner
from torch_loom.errors import PipelineError, PipelineStoppedError, QueueFullError, StageError
from torch_loom.pipeline import Pipeline, Stage

PROGRAMS = Path(__file__).parent / "programs" / "abuse"

END_SECONDS = 10  # a shutdown from any state
ERROR_SECONDS = 5  # from a worker's death to its reader's error

_BODIES = {
    "get": "start(); outputs.get(); outputs.get()",
    "sync": "start(); pipeline.forward(5); pipeline.sync()",
    "push": "start(); [pipeline.push(torch.ones(1)) for _ in range(9)]",
    "gradients": "start(True); pipeline.backward(1); pipeline.forward(2); pipeline.gradients()",
    "inline": "start(); pipeline.sync(); pipeline.push(-torch.ones(1)); pipeline.forward(1, inline=True)",
}


@pytest.mark.long
@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
def test_ctrl_c_ends_the_pipeline(body: str, fork_loom: PythonRunner) -> None:
    done = fork_loom(PROGRAMS / "ctrl_c.py", given=body)
    expected = ["interrupted", "ended", "in time", "[]", "nothing shared"]
    assert done.stdout.splitlines() == expected, done.stdout + done.stderr


def adders(device: str = "cpu") -> list[Stage]:
    return [Stage(f"s{place}", nn.Identity(), device) for place in range(2)]


def _pushes_for_ever(pipeline: Pipeline) -> None:
    while True:
        pipeline.push(torch.ones(1))


_STATES: dict[str, Any] = {
    "idle": lambda pipeline: None,
    "endless": lambda pipeline: pipeline.forward(0),
    "waits for inputs": lambda pipeline: (pipeline.forward(3), pipeline.sync()),
    "waits for targets": lambda pipeline: (pipeline.push(torch.ones(1)), pipeline.train(), pipeline.sync()),
    "a full queue": _pushes_for_ever,
    "waits for parameters": lambda pipeline: (pipeline.forward(1), pipeline.checkpoint()),
    "endless backward": lambda pipeline: (pipeline.forward(0), pipeline.backward(0), pipeline.sync()),
}


@pytest.mark.parametrize("state", _STATES.values(), ids=_STATES)
def test_shutdown_ends_every_state(state: Any, pipelines: list[Pipeline]) -> None:
    stages = adders()
    stages[-1].loss = nn.MSELoss()
    pipeline = Pipeline(stages, queue_entries=2)
    pipelines.append(pipeline)
    pipeline.start(training=True)
    raised: list[BaseException] = []
    there = threading.Event()

    def use() -> None:
        there.set()
        try:
            state(pipeline)
        except BaseException as error:
            raised.append(error)

    user = threading.Thread(target=use, daemon=True)
    user.start()
    assert there.wait(60)
    user.join(0.05)  # most of them block, and then are blocked by now
    begin = time.monotonic()
    results: list[bool] = []
    ends = [threading.Thread(target=lambda: results.append(pipeline.shutdown())) for _ in range(3)]
    for end in ends:
        end.start()
    for end in ends:
        end.join(60)
    assert results == [True] * 3
    assert pipeline.shutdown()
    assert time.monotonic() - begin < END_SECONDS
    user.join(60)
    assert not user.is_alive()
    # A push finds the queue without a reader after the end, and is refused.
    assert all(isinstance(error, (PipelineStoppedError, QueueFullError)) for error in raised), raised


def test_a_module_may_end_its_own_pipeline(pipelines: list[Pipeline]) -> None:
    class Ends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            done.append(pipeline.shutdown())
            return x

    done: list[bool] = []
    pipeline = Pipeline([Stage("ends", Ends()), Stage("next", nn.Identity())])
    pipelines.append(pipeline)
    outputs: queue.Queue[Any] = queue.Queue()
    pipeline.start(training=False, outputs=outputs)
    worker = pipeline.worker(0)
    assert worker is not None
    pipeline.push(torch.ones(1))
    with contextlib.suppress(PipelineStoppedError):  # it may end before forward() has told each stage
        pipeline.forward()
    assert worker.join(60)
    assert done == [True]
    with pytest.raises(PipelineStoppedError):
        pipeline.sync()


def test_a_stage_that_was_left_behind_is_not_used_twice() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Stuck(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            entered.set()
            assert leave.wait(60)
            return x

    pipeline = Pipeline([Stage("stuck", Stuck())])
    pipeline.start(training=False)
    worker = pipeline.worker(0)
    assert worker is not None
    pipeline.push(torch.ones(1))
    pipeline.forward()
    assert entered.wait(60)
    assert not pipeline.shutdown(timeout=0.05)
    with pytest.raises(PipelineError, match="stage 'stuck' is still within a module"):
        pipeline.start(training=False)
    leave.set()
    assert worker.join(60)
    pipeline.start(training=False)
    assert pipeline.shutdown()


@pytest.mark.long
def test_a_worker_that_dies_in_silence_is_found(pipelines: list[Pipeline]) -> None:
    outputs: queue.Queue[Any] = queue.Queue()
    pipeline = Pipeline(adders())
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    worker = pipeline.worker(1)
    assert worker is not None
    # As if its thread had been killed outside of everything that it catches.
    worker._thread = threading.Thread(target=lambda: None)
    worker._thread.start()
    worker._thread.join()
    with pytest.raises(StageError, match=r"stage 's1' failed in its thread: .*ended without an error"):
        outputs.get()


def test_the_calling_thread_does_not_wait_for_targets(pipelines: list[Pipeline]) -> None:
    stages = adders()
    stages[-1].loss = nn.MSELoss()
    pipeline = Pipeline(stages)
    pipelines.append(pipeline)
    pipeline.start(training=True)
    pipeline.push(torch.ones(1))
    with pytest.raises(PipelineError, match="1 inputs and 0 targets wait"):
        pipeline.forward(1, inline=True)
    assert pipeline.running


def _resources() -> tuple[int, int, int]:
    allocated = sum(loom.memory_allocated(index) for index in range(2))
    return threading.active_count(), len(os.listdir("/proc/self/fd")), allocated


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "loom:1"])
def test_a_thousand_cycles_leak_nothing(device: str) -> None:
    def cycles(number: int) -> None:
        for _ in range(number):
            outputs: queue.Queue[Any] = queue.Queue()
            with Pipeline(adders(device)) as pipeline:
                pipeline.start(training=False, outputs=outputs)
                pipeline.push(torch.ones(1))
                pipeline.forward(1)
                assert outputs.get(timeout=60)[0].item() == 1
        gc.collect()

    cycles(100)
    resources, resident = _resources(), _resident_bytes()
    cycles(1000)
    assert _resources() == resources
    assert _resident_bytes() - resident < 16 << 20  # 16 KiB a cycle would be a leak; noise is below


@pytest.mark.parametrize("number", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_stage_killed_at_a_random_moment_is_an_error(number: int) -> None:
    chance = random.Random(15)
    for _ in range(number):
        outputs: queue.Queue[Any] = queue.Queue()
        pipeline = Pipeline(adders("loom:0"), queue_entries=4)
        pipeline.start(training=False, outputs=outputs)
        pipeline.forward(0)
        feeder = threading.Thread(target=_feed, args=(pipeline,), daemon=True)
        feeder.start()
        for _ in range(chance.randrange(20)):
            outputs.get(timeout=60)
        worker = pipeline.worker(chance.randrange(2))
        assert worker is not None
        assert worker._thread is not None
        ident = ctypes.c_ulong(worker._thread.ident or 0)
        killed = time.monotonic()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        with pytest.raises(StageError, match=f"stage '{worker.stage.name}' failed"):
            _read_for_ever(outputs)
        assert time.monotonic() - killed < ERROR_SECONDS
        feeder.join(60)
        assert not feeder.is_alive()
        assert pipeline.shutdown()


def _read_for_ever(outputs: queue.Queue[Any]) -> None:
    while True:
        outputs.get(timeout=60)


def _feed(pipeline: Pipeline) -> None:
    try:
        _pushes_for_ever(pipeline)
    except PipelineError:
        return

"""Runs, queues and the end of a pipeline."""

from __future__ import annotations

import gc
import multiprocessing
import queue
import threading
import time
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom.errors import PipelineError, PipelineStoppedError, QueueFullError, QueueTypeError, StageError
from torch_loom.pipeline import Channel, Pipeline, Stage, schedule, simulate
from torch_loom.pipeline.schedule import ScheduleName

Queue = queue.Queue


class Add(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x + self.value, *rest)


class Gate(nn.Module):
    """Waits within its forward until it is opened, and says when it got there."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.open = threading.Event(), threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.entered.set()
        assert self.open.wait(60)
        return x


class Bad(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("the seventh layer")


def adders(number: int, device: str = "cpu") -> list[Stage]:
    return [Stage(f"s{place}", Add(10.0**place), device.format(place)) for place in range(number)]


@pytest.mark.parametrize("device", ["cpu", "loom:0", "loom:{}"])
@pytest.mark.parametrize("num_stages", [1, 2])
def test_inference(num_stages: int, device: str, pipelines: list[Pipeline]) -> None:
    outputs: Queue[Any] = Queue()
    pipeline = Pipeline(adders(num_stages, device), stage_queue_entries=1)
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    pipeline.push(torch.zeros(1), torch.ones(1))
    pipeline.forward(4)
    for value in (1.0, 2.0, 3.0):
        pipeline.push(torch.full((1,), value), torch.ones(1))
    added = sum(10.0**place for place in range(num_stages))
    for value in (0.0, 1.0, 2.0, 3.0):
        first, second = outputs.get(timeout=60)
        assert first.tolist() == [value + added]
        assert second.tolist() == [1.0]
    pipeline.sync()
    assert len(pipeline.report().stages["s0"]) == 4


def test_inputs_by_name(pipelines: list[Pipeline]) -> None:
    class Difference(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a - b

    outputs: Queue[Any] = Queue()
    pipeline = Pipeline([Stage("only", Difference())])
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    pipeline.push(b=torch.tensor(1.0), a=torch.tensor(5.0))
    pipeline.forward()
    assert outputs.get(timeout=60)[0].item() == 4.0


def test_inputs_are_copies(pipelines: list[Pipeline]) -> None:
    outputs: Queue[Any] = Queue()
    pipeline = Pipeline(adders(1))
    pipelines.append(pipeline)
    x = torch.zeros(1)
    pipeline.push(x)
    x += 5
    pipeline.start(training=False, outputs=outputs)
    pipeline.forward()
    assert outputs.get(timeout=60)[0].item() == 1.0


def test_run_without_end(pipelines: list[Pipeline]) -> None:
    outputs: Queue[Any] = Queue()
    pipeline = Pipeline(adders(2))
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    pipeline.forward(0)
    for value in (1.0, 2.0):
        pipeline.push(torch.full((1,), value))
        assert outputs.get(timeout=60)[0].item() == value + 11
    pipeline.end_endless()
    pipeline.sync()
    pipeline.push(torch.zeros(1))
    with pytest.raises(queue.Empty):
        outputs.get(timeout=0.05)
    pipeline.forward(1)
    assert outputs.get(timeout=60)[0].item() == 11.0


def test_inline_runs_what_waits(pipelines: list[Pipeline]) -> None:
    outputs: Queue[Any] = Queue()
    pipeline = Pipeline(adders(2))
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    for value in (1.0, 2.0):
        pipeline.push(torch.full((1,), value))
    pipeline.forward(5, inline=True)
    assert [outputs.get_nowait()[0].item() for _ in range(2)] == [12.0, 13.0]
    assert outputs.empty()


def test_push_fills_up_and_is_refused_when_nothing_runs(pipelines: list[Pipeline]) -> None:
    pipeline = Pipeline(adders(1), queue_entries=2)
    pipelines.append(pipeline)
    pipeline.push(torch.zeros(1))
    pipeline.push(torch.zeros(1))
    with pytest.raises(QueueFullError, match=r"2 entries of 2.*nothing runs"):
        pipeline.push(torch.zeros(1))


def test_an_entry_counts_while_it_is_held(pipelines: list[Pipeline]) -> None:
    gate = Gate()
    pipeline = Pipeline([Stage("only", gate)], queue_entries=2)
    pipelines.append(pipeline)
    pipeline.start(training=False)
    pipeline.forward(3)
    pipeline.push(torch.zeros(1))
    assert gate.entered.wait(60)
    pipeline.push(torch.zeros(1))
    assert pipeline.inputs.num_held == 2
    pushed = threading.Event()

    def push() -> None:
        pipeline.push(torch.zeros(1))
        pushed.set()

    thread = threading.Thread(target=push)
    thread.start()
    assert not pushed.wait(0.05), "the queue is full while the first entry is worked on"
    gate.open.set()
    assert pushed.wait(60)
    thread.join(60)
    pipeline.sync()


def test_stages_hold_one_another_back(pipelines: list[Pipeline]) -> None:
    gate = Gate()
    pipeline = Pipeline([Stage("fast", Add(1.0)), Stage("slow", gate)], stage_queue_entries=2)
    pipelines.append(pipeline)
    pipeline.start(training=False)
    for _ in range(10):
        pipeline.push(torch.zeros(1))
    pipeline.forward(10)
    assert gate.entered.wait(60)
    # One is worked on and counts, one waits, and one is in the hands of the first stage.
    assert len(pipeline.inputs) >= 10 - 4
    gate.open.set()
    pipeline.sync()
    assert len(pipeline.inputs) == 0


@pytest.mark.parametrize("kind", [Queue, lambda: multiprocessing.get_context("spawn").Queue()])
def test_the_first_error_reaches_every_reader(kind: Any, pipelines: list[Pipeline]) -> None:
    outputs = kind()
    pipeline = Pipeline([Stage("good", Add(1.0)), Stage("broken", Bad())])
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    pipeline.push(torch.zeros(1))
    pipeline.forward(1)
    for use in (
        lambda: outputs.get(timeout=60),
        lambda: outputs.get(),
        pipeline.sync,
        lambda: pipeline.push(torch.zeros(1)),
        lambda: pipeline.forward(1),
        pipeline.checkpoint,
    ):
        with pytest.raises(StageError, match=r"stage 'broken' failed.*the seventh layer") as caught:
            use()
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.stage == "broken"
        assert "in forward" in str(caught.value), "the worker's traceback"
    assert not pipeline.running
    assert pipeline.error is not None


def test_a_reader_that_came_before_the_run_is_woken(pipelines: list[Pipeline]) -> None:
    outputs: Queue[Any] = Queue()
    caught: list[BaseException] = []

    def read() -> None:
        try:
            outputs.get()
        except StageError as error:
            caught.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    pipeline = Pipeline([Stage("broken", Bad())])
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    pipeline.push(torch.zeros(1))
    pipeline.forward(1)
    reader.join(60)
    assert [type(error.__cause__) for error in caught] == [KeyError]


def test_results_before_the_error_are_read_first(pipelines: list[Pipeline]) -> None:
    class Third(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.item() == 3:
                raise ValueError("three")
            return x

    outputs: Queue[Any] = Queue()
    pipeline = Pipeline([Stage("only", Third())])
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    for value in (1.0, 2.0, 3.0):
        pipeline.push(torch.tensor(value))
    pipeline.forward(3)
    with pytest.raises(StageError):
        pipeline.sync()
    assert [outputs.get()[0].item() for _ in range(2)] == [1.0, 2.0]
    with pytest.raises(ValueError, match="three"):
        outputs.get()
    pipeline.shutdown()
    pipeline.start(training=False, outputs=outputs)
    pipeline.push(torch.tensor(7.0))
    pipeline.forward()
    assert outputs.get(timeout=60)[0].item() == 7.0


def test_queues_that_cannot_carry_errors_are_refused() -> None:
    pipeline = Pipeline(adders(1))
    with pytest.raises(QueueTypeError, match="takes no attributes"):
        pipeline.start(training=False, outputs=queue.SimpleQueue())
    with pytest.raises(TypeError, match="is no queue"):
        pipeline.start(training=False, outputs=[])
    assert not pipeline.running


def test_misuse_is_refused(pipelines: list[Pipeline]) -> None:
    with pytest.raises(PipelineError, match="different names"):
        Pipeline([Stage("a", Add(1)), Stage("a", Add(1))])
    with pytest.raises(PipelineError, match="a stage or more"):
        Pipeline([])
    pipeline = Pipeline(adders(2))
    pipelines.append(pipeline)
    for call in (pipeline.sync, pipeline.forward, pipeline.checkpoint, pipeline.step):
        with pytest.raises(PipelineError, match="not started"):
            call()
    with pytest.raises(PipelineError, match="2 forward and 0 backward"):
        pipeline.start(training=False, forward_taps=[Queue(), Queue()])
    pipeline.start(training=False)
    with pytest.raises(PipelineError, match="runs already"):
        pipeline.start(training=False)
    with pytest.raises(PipelineError, match="inference"):
        pipeline.backward()
    with pytest.raises(PipelineError, match="inference"):
        pipeline.train()
    with pytest.raises(PipelineError, match="count is -1"):
        pipeline.forward(-1)
    for wrong in ((), (1.0,), ("x",)):
        with pytest.raises(TypeError):
            pipeline.push(*wrong)
    pipeline.shutdown()
    pipeline.start(training=True)
    with pytest.raises(PipelineError, match="1 backwards were asked for, and 0"):
        pipeline.backward()
    for name in ("epochs", "steps", "accumulation_steps", "microbatches"):
        with pytest.raises(PipelineError, match=f"{name} is 0"):
            pipeline.train(**{name: 0})
    assert pipeline.running, "a refused call changes nothing"


def test_shutdown_returns_from_any_state(pipelines: list[Pipeline]) -> None:
    pipeline = Pipeline(adders(2))
    assert pipeline.shutdown()
    pipeline.start(training=False)
    pipeline.forward(100)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            pipeline.sync()
        except PipelineStoppedError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert pipeline.shutdown()
    assert pipeline.shutdown()
    waiting.join(60)
    assert len(caught) <= 1
    assert not waiting.is_alive()
    with pytest.raises(PipelineStoppedError):
        pipeline.sync()


def test_shutdown_leaves_a_stuck_stage_behind() -> None:
    gate = Gate()
    pipeline = Pipeline([Stage("stuck", gate)])
    pipeline.start(training=False)
    pipeline.push(torch.zeros(1))
    pipeline.forward()
    assert gate.entered.wait(60)
    begin = time.monotonic()
    assert not pipeline.shutdown(timeout=0.1)
    assert time.monotonic() - begin < 10
    gate.open.set()


def test_shutdown_ends_what_runs_in_the_callers_thread() -> None:
    # Its targets are dropped while its stage computes: it must not wait for others.
    gate, caught = Gate(), []
    pipeline = Pipeline([Stage("gate", gate, loss=nn.MSELoss())])
    pipeline.start(training=True)
    pipeline.push(torch.zeros(1))
    pipeline.push_target(torch.zeros(1))

    def forward() -> None:
        try:
            pipeline.forward(inline=True)
        except PipelineStoppedError as error:
            caught.append(error)

    running = threading.Thread(target=forward, daemon=True)
    running.start()
    assert gate.entered.wait(60)
    assert pipeline.shutdown()
    gate.open.set()
    running.join(30)
    assert not running.is_alive()
    assert len(caught) == 1


@pytest.mark.long
def test_threads_and_memory_come_back() -> None:
    def cycle() -> None:
        outputs: Queue[Any] = Queue()
        with Pipeline(adders(2)) as pipeline:
            pipeline.start(training=False, outputs=outputs)
            pipeline.push(torch.zeros(1))
            pipeline.forward(1)
            outputs.get(timeout=60)

    cycle()
    gc.collect()
    threads, objects = threading.active_count(), len(gc.get_objects())
    for _ in range(30):
        cycle()
    gc.collect()
    assert threading.active_count() == threads
    assert len(gc.get_objects()) - objects < 300


def test_a_killed_worker_is_an_error(pipelines: list[Pipeline]) -> None:
    """An exception set from outside ends the worker; the reader is told."""
    import ctypes

    outputs: Queue[Any] = Queue()
    pipeline = Pipeline(adders(2))
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    pipeline.forward(0)
    victim = next(thread for thread in threading.enumerate() if thread.name == "loom stage s1")
    assert victim.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim.ident), ctypes.py_object(SystemExit))
    with pytest.raises(StageError, match="s1"):
        outputs.get(timeout=60)


def test_taps_see_what_goes_between_stages(pipelines: list[Pipeline]) -> None:
    forward: list[Queue[Any]] = [Queue(), Queue()]
    backward: list[Queue[Any]] = [Queue(), Queue()]
    debug: Queue[Any] = Queue()
    stages = [Stage(f"s{place}", nn.Linear(2, 2, bias=False)) for place in range(3)]
    stages[-1].loss = lambda out, target: (out * target).sum()
    for stage in stages:
        stage.update({"weight": torch.eye(2) * 2})
    pipeline = Pipeline(stages)
    pipelines.append(pipeline)
    pipeline.start(training=True, forward_taps=forward, backward_taps=backward, gradient_taps={"s1": debug})
    pipeline.push(torch.ones(1, 2))
    pipeline.push_target(torch.ones(1, 2))
    pipeline.forward()
    pipeline.backward()
    pipeline.sync()
    assert [q.get_nowait()[0].tolist() for q in forward] == [[[2.0, 2.0]], [[4.0, 4.0]]]
    # From the second stage on: what it sends back to the first, then what the third sends to it.
    assert [q.get_nowait()[0].tolist() for q in backward] == [[[4.0, 4.0]], [[2.0, 2.0]]]
    assert [debug.get_nowait()[0].tolist() for _ in range(2)] == [[[2.0, 2.0]], [[4.0, 4.0]]]


@pytest.mark.parametrize("name", ["all_forward", "1f1b"])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 5])
@pytest.mark.parametrize("num_microbatches", [1, 2, 4, 9])
def test_schedules_never_deadlock(name: ScheduleName, num_stages: int, num_microbatches: int) -> None:
    for capacity in (1, 2):
        rows = simulate(name, num_stages, num_microbatches, capacity=capacity)
        for stage, row in enumerate(rows):
            assert [step for _, _, step in row] == schedule(name, stage, num_stages, num_microbatches)
    alive = 0
    for kind, _ in schedule("1f1b", 0, num_stages, num_microbatches):
        alive += 1 if kind == "F" else -1
        assert alive <= num_stages


def test_the_bubble_of_1f1b_is_the_known_one() -> None:
    """(stages - 1) / (micro-batches + stages - 1) of the time, where all steps take the same time."""
    rows = simulate("1f1b", 4, 12)
    end = max(row[-1][1] for row in rows)
    assert 1 - 24 / end == pytest.approx(3 / (12 + 3))


def test_report_draws_every_stage(pipelines: list[Pipeline]) -> None:
    pipeline = Pipeline(adders(2))
    pipelines.append(pipeline)
    assert pipeline.report().draw() == "nothing ran"
    pipeline.start(training=False)
    for _ in range(3):
        pipeline.push(torch.zeros(1))
    pipeline.forward(3)
    pipeline.sync()
    report = pipeline.report()
    lines = report.draw(40).splitlines()
    assert lines[0].startswith("s0 |")
    assert "F" in lines[0]
    assert "F" in lines[1]
    assert "bubble" in lines[2]
    assert 0 <= report.bubble < 1


def test_channel_ends_and_capacity() -> None:
    with pytest.raises(PipelineError, match="capacity is 0"):
        Channel[int]("x", 0)
    channel = Channel[int]("x", 2)
    channel.put(1)
    assert channel.peek() == 1
    assert channel.take() == 1
    channel.put(2)
    with pytest.raises(QueueFullError):
        channel.put(3)
    channel.release()
    channel.put(3)
    assert channel.get() == 2
    assert channel.clear() == 1
    with pytest.raises(TimeoutError):
        channel.get(timeout=0.01)

"""A stage with an mp_context runs in a process of its own, and is the same stage."""

from __future__ import annotations

import functools
import multiprocessing
import os
import queue
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom import pybuda
from torch_loom.errors import PipelineError, StageError
from torch_loom.pipeline import Pipeline, ProcessStage, Stage

SECONDS = 60
SPAWN = multiprocessing.get_context("spawn")
adam = functools.partial(torch.optim.Adam, lr=0.01)


class Teller(nn.Module):
    """Says which process it runs in, sleeps for as many seconds as it is told, refuses the negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.min() < 0:
            raise ValueError("negative")
        time.sleep(float(x.max()))
        return torch.full((1,), os.getpid())


def shared_memory(*processes: int) -> set[str]:
    """What tensors of these processes leave; other tests' come and go meanwhile."""
    return {
        name for name in os.listdir("/dev/shm") if name.startswith(tuple(f"torch_{p}_" for p in processes))
    }


def trained(mp_context: Any) -> tuple[list[float], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Losses, the checkpoint, and the modules' values after two runs over two stages."""
    torch.manual_seed(2)
    first, second = nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2))
    loss = nn.CrossEntropyLoss()
    last = (
        Stage("last", second, loss=loss, optimizer=adam)
        if mp_context is None
        else ProcessStage("last", second, "loom:1", loss=loss, optimizer=adam, mp_context=mp_context)
    )
    losses: queue.Queue[Any] = queue.Queue()
    got: list[float] = []
    pipeline = Pipeline([Stage("first", first, "loom:0", optimizer=adam), last])
    checkpoint: dict[str, torch.Tensor] = {}
    for _ in range(2):  # the second run goes on from the first, the optimizer's moments too
        with pipeline:
            pipeline.start(training=True, losses=losses)
            for _ in range(8):
                pipeline.push(torch.rand(3, 4))
                pipeline.push_target(torch.randint(0, 2, (3,)))
            pipeline.train(steps=2, microbatches=4)
            got += [float(losses.get(timeout=SECONDS)[0]) for _ in range(8)]
            checkpoint = pipeline.checkpoint()[1]
    return got, checkpoint, second.state_dict()


@pytest.mark.slow
def test_training_in_a_process_is_training() -> None:
    losses, checkpoint, _ = trained(None)
    got, taken, values = trained(SPAWN)
    assert got == losses
    assert all(torch.equal(taken[name], checkpoint[name]) for name in checkpoint)
    assert all(torch.equal(values[name], checkpoint[name]) for name in checkpoint), "the modules have learned"


@pytest.mark.slow
def test_errors_and_the_end_of_a_process() -> None:
    before = set(multiprocessing.active_children())
    outputs: queue.Queue[Any] = queue.Queue()
    stage = ProcessStage("teller", Teller(), mp_context="spawn")
    pipeline = Pipeline([Stage("first", nn.Identity()), stage])
    pipeline.start(training=False, outputs=outputs)
    pipeline.push(torch.zeros(1))
    pipeline.forward(1)
    child = int(outputs.get(timeout=SECONDS)[0])
    assert child != os.getpid()
    pipeline.push(-torch.ones(1))
    pipeline.forward(1)
    with pytest.raises(StageError, match="negative") as caught:
        outputs.get(timeout=SECONDS)
    assert isinstance(caught.value, ValueError)
    assert 'raise ValueError("negative")' in str(caught.value), "the traceback of the process"
    assert pipeline.shutdown()
    assert not Path(f"/proc/{child}").exists()

    # A process that is killed while nothing is asked of it.
    pipeline.start(training=False, outputs=outputs)
    assert stage._process.is_alive()
    stage._process.kill()
    with pytest.raises(StageError, match="exit code -9"):
        outputs.get(timeout=SECONDS)
    assert pipeline.shutdown()

    # A process that is within a module when the pipeline is shut down.
    pipeline.start(training=False, outputs=outputs)
    pipeline.push(torch.full((1,), 100.0))
    pipeline.forward(1)
    begin = time.monotonic()
    assert pipeline.shutdown()
    assert time.monotonic() - begin < 10
    assert set(multiprocessing.active_children()) <= before
    assert not shared_memory(os.getpid(), child)


@pytest.mark.slow
def test_devices_in_processes() -> None:
    before = set(multiprocessing.active_children())
    torch.manual_seed(1)
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.rand(2, 4)
    expected = second(first(x))
    try:
        tt0 = pybuda.TTDevice("tt0", mp_context=SPAWN, module=pybuda.PyTorchModule("a", first))
        pybuda.CPUDevice("cpu1", mp_context=SPAWN, module=pybuda.PyTorchModule("b", second))
        tt0.push_to_inputs(x)
        got = pybuda.run_inference().get(timeout=SECONDS)[0].value()
        assert torch.equal(got, expected)
        assert len(set(multiprocessing.active_children()) - before) == 2
        pybuda.shutdown()
        assert set(multiprocessing.active_children()) <= before
    finally:
        pybuda.pybuda_reset()


def test_what_cannot_go_to_a_process() -> None:
    with pytest.raises(PipelineError, match="spawn"):
        ProcessStage("forked", nn.Identity(), mp_context=multiprocessing.get_context("fork"))
    stage = ProcessStage("a", nn.Linear(1, 1), optimizer=lambda p: torch.optim.SGD(p), mp_context="spawn")
    pipeline = Pipeline([stage])
    with pytest.raises(PipelineError, match="picklable"):
        pipeline.start(training=True)
    assert pipeline.shutdown()
    assert stage.checkpoint().keys() == {"weight", "bias"}

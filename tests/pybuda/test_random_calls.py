"""Random sequences of PyBuda calls, valid and not: each ends in a result or in a documented error."""

from __future__ import annotations

import gc
import os
import queue
import random
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torch_loom.device as loom
from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import LoomError
from torch_loom.pybuda.enums import DeviceMode

BLOCKED_SECONDS = 0.1  # after this a call counts as waiting, and the pipeline is shut down from outside
LIMIT_SECONDS = 30
DOCUMENTED = (LoomError, queue.Empty)


class Program:
    """A program that knows the API's names and nothing of its rules."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.queues: list[Any] = []
        self.log: list[str] = []

    def begin(self) -> None:
        """Begin with a pipeline that runs, three times out of four; in training half of these."""
        if self.chance.random() < 0.25:
            return
        training, on_chip = self.chance.random() < 0.5, self.chance.random() < 0.5
        sgd = pybuda.SGD(0.1, device_params=True)
        first = pybuda.TTDevice("x", optimizer=sgd) if on_chip else pybuda.CPUDevice("x")
        last = pybuda.CPUDevice("y", lambda p: torch.optim.SGD(p, 0.1))
        for device, name in ((first, "a"), (last, "b")):
            device.place_module(pybuda.PyTorchModule(name, nn.Linear(SIZE, SIZE)))
        if training:
            last.place_loss_module(pybuda.PyTorchModule("l", nn.MSELoss()))
        samples = inputs()[:1]
        made = pybuda.initialize_pipeline(
            training, sample_inputs=samples, sample_targets=samples if training else ()
        )
        self.queues.append(made)
        for _ in range(self.chance.randrange(4)):
            first.push_to_inputs(*samples)
            last.push_to_target_inputs(*samples)
        self.log.append(f"initialized, training={training}")

    def step(self) -> Callable[[], Any]:
        """Choose a call and say in the log which."""
        weighted = {
            self.make_device: 2, self.place: 4, self.place_loss: 2, self.remove: 1, self.push: 7,
            self.push_targets: 4, self.run_inference: 3, self.run_training: 2, self.initialize: 3,
            self.command: 6, self.parameters: 2, self.update: 1, self.read: 4, self.ask: 3, self.end: 1,
            self.own_loop: 2, self.reorder: 1,
        }  # fmt: skip
        [made] = self.chance.choices(list(weighted), list(weighted.values()))
        name, call = made()
        self.log.append(name)
        return call

    def device(self) -> Any:
        return self.chance.choice(pybuda.pybudaglobal.get_devices() or [pybuda.CPUDevice("made")])

    def count(self) -> int:
        return self.chance.choice([-1, 0, 1, 1, 2, 3])

    def queue(self) -> Any:
        kind = self.chance.choice([None, None, queue.Queue, queue.Queue, queue.SimpleQueue, list])
        return None if kind is None else kind()

    def module(self) -> Any:
        name = self.chance.choice("abcd")
        return self.chance.choice(
            [
                lambda: Projection(name),
                lambda: Echo(name),
                lambda: pybuda.PyTorchModule(name, Blend()),
                lambda: pybuda.PyTorchModule(name, nn.Linear(SIZE, SIZE)),
                lambda: pybuda.PyTorchModule(name, nn.Linear(SIZE, SIZE)),
            ]
        )()

    def value(self) -> Any:
        right = inputs()[0]
        return self.chance.choice([right, right, right, right.half(), right[..., :3], "text", 1.5])

    def make_device(self) -> Any:
        name, sgd = self.chance.choice("xyz"), pybuda.SGD(0.1, device_params=True)
        return self.chance.choice(
            [
                ("TTDevice", lambda: pybuda.TTDevice(name, optimizer=sgd)),
                ("TTDevice chip", lambda: pybuda.TTDevice(name, chip_ids=[self.chance.randrange(3)])),
                ("CPUDevice", lambda: pybuda.CPUDevice(name, lambda p: torch.optim.SGD(p, 0.1))),
                ("GPUDevice", lambda: pybuda.GPUDevice(name)),
            ]
        )

    def place(self) -> Any:
        return "place_module", lambda: self.device().place_module(self.module())

    def place_loss(self) -> Any:
        loss: Any = self.chance.choice([pybuda.PyTorchModule("l", nn.MSELoss()), nn.MSELoss()])
        return "place_loss_module", lambda: self.device().place_loss_module(loss)

    def remove(self) -> Any:
        name = self.chance.choice(["remove_modules", "remove_loss_module"])
        return name, lambda: getattr(self.device(), name)() if hasattr(self.device(), name) else None

    def push(self) -> Any:
        given = [self.value() for _ in range(self.chance.choice([1, 1, 2, 2, 0]))]
        return "push_to_inputs", lambda: self.device().push_to_inputs(*given)

    def push_targets(self) -> Any:
        value = self.value()
        return "push_to_target_inputs", lambda: self.device().push_to_target_inputs(value)

    def run_inference(self) -> Any:
        def run() -> None:
            given = [inputs() for _ in range(self.chance.randrange(3))]
            module = self.chance.choice([None, None, self.module(), nn.Linear(1, 1)])
            inline = self.chance.random() < 0.3
            self.queues.append(pybuda.run_inference(module, given, self.count(), self.queue(), inline))

        return "run_inference", run

    def run_training(self) -> Any:
        def run() -> None:
            counts = [max(self.count(), self.chance.randrange(2)) for _ in range(4)]
            self.queues.append(pybuda.run_training(*counts, self.queue(), self.queue(), self.count()))

        return "run_training", run

    def initialize(self) -> Any:
        def run() -> None:
            training = self.chance.random() < 0.5
            samples: Any = self.chance.choice([(), inputs(), {"x": inputs()[0]}])
            targets: Any = self.chance.choice([(), inputs()[:1]])
            mode = self.chance.choice([DeviceMode.CompileAndRun] * 4 + [DeviceMode.CompileOnly])
            self.queues.append(
                pybuda.initialize_pipeline(
                    training, self.queue(), self.queue(), samples, targets, _device_mode=mode
                )
            )

        return "initialize_pipeline", run

    def command(self) -> Any:
        count, inline = self.count(), self.chance.random() < 0.3
        return self.chance.choice(
            [
                ("run_forward", lambda: pybuda.run_forward(count, _sequential=inline)),
                ("run_backward", lambda: pybuda.run_backward(count, count == 1, _sequential=inline)),
                ("run_optimizer", lambda: pybuda.run_optimizer(count == 1, _sequential=inline)),
                ("run_schedulers", lambda: pybuda.run_schedulers(_sequential=inline)),
                ("run_generate", lambda: pybuda.run_generate(max(count, 0), write_index=count)),
            ]
        )

    def parameters(self) -> Any:
        name = self.chance.choice(["get_parameter_checkpoint", "get_parameter_gradients"])
        device = self.chance.choice([None, self.device()])
        return name, lambda: getattr(pybuda, name)(device)

    def update(self) -> Any:
        values = self.chance.choice(
            [[], [{}], [{"weight": torch.zeros(SIZE, SIZE)}], [{"no": torch.ones(1)}]]
        )
        return "update", lambda: pybuda.update_device_parameters(self.device(), values)

    def read(self) -> Any:
        known = [one for one in self.queues if isinstance(one, queue.Queue)]
        chosen = self.chance.choice(known or [queue.Queue()])
        return "get", lambda: chosen.get(timeout=0.02)

    def ask(self) -> Any:
        name = self.chance.choice(["sync", "error_raised", "get_loss_queue", "detect_available_devices"])
        return name, getattr(pybuda, name)

    def end(self) -> Any:
        name = self.chance.choice(["shutdown", "shutdown", "pybuda_reset"])
        return name, getattr(pybuda, name)

    def own_loop(self) -> Any:
        device, count = self.device(), max(self.count(), 0)
        return self.chance.choice(
            [
                ("forward", lambda: device.forward(min(count, len(device.input_channel())))),
                ("backward", lambda: device.stage is not None and device.backward(count, True)),
                ("get_first_inputs", lambda: device.get_first_inputs(peek=count == 1)),
                ("device.sync", device.sync),
                ("device.checkpoint", device.get_parameter_checkpoint),
                ("cpueval_forward", lambda: device.cpueval_forward([inputs()[0]], {}, count == 1)),
            ]
        )

    def reorder(self) -> Any:
        order: list[Any] = pybuda.pybudaglobal.get_devices()
        self.chance.shuffle(order)
        return "set_device_pipeline", lambda: pybuda.set_device_pipeline(order)


def run_call(program: Program, call: Callable[[], Any]) -> None:
    """Run a call in a thread; end the pipeline from outside if it waits."""
    ended, unexpected = threading.Event(), []

    def run() -> None:
        try:
            call()
        except DOCUMENTED as error:
            program.log[-1] += f": {type(error).__name__}"
        except TypeError as error:
            if "tensor" not in str(error):  # what is pushed must be one, says the message
                unexpected.append(error)
        except BaseException as error:
            unexpected.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    if not ended.wait(BLOCKED_SECONDS):
        program.log.append("shutdown from outside")
        begin = time.monotonic()
        pybuda.shutdown()
        assert time.monotonic() - begin < 10, program.log
        assert ended.wait(LIMIT_SECONDS), f"a call waits for ever: {program.log}"
    assert not unexpected, f"{unexpected[0]!r} after {program.log}"


SEEDS = [range(8), *(pytest.param(range(low, low + 48), marks=pytest.mark.slow) for low in range(8, 200, 48))]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
def test_every_call_ends_in_a_result_or_a_documented_error(seeds: range) -> None:
    for seed in seeds:
        torch.manual_seed(seed)
        program = Program(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.begin()
            for _ in range(20):
                try:
                    call = program.step()
                except DOCUMENTED:
                    continue
                run_call(program, call)
            pybuda.pybuda_reset()
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("loom stage")]
        assert left == [], program.log


@pytest.mark.slow
def test_a_thousand_runs_leak_nothing() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))

    def cycles(number: int) -> None:
        for _ in range(number):
            results = pybuda.initialize_pipeline(training=False, sample_inputs=(torch.ones(1, SIZE),))
            tt0.push_to_inputs(torch.ones(1, SIZE))
            pybuda.run_forward()
            results.get(timeout=60)
            pybuda.shutdown()
        gc.collect()

    def resources() -> tuple[int, int, int]:
        allocated = loom.memory_allocated(0)
        return threading.active_count(), len(os.listdir("/proc/self/fd")), allocated

    cycles(100)
    before = resources()
    cycles(1000)
    assert resources() == before

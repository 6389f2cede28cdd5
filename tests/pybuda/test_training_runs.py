"""Training by PyBuda's run functions, as its documentation says."""

from __future__ import annotations

import multiprocessing
import queue
from typing import Any

import pytest
import torch
from torch import nn

from tests.pybuda.checks import SECONDS, assert_same, read
from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import PipelineError, PyBudaError


def trained(sequential: bool, devices: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Losses and parameters of a training run over so many devices."""
    torch.manual_seed(5)
    parts = [nn.Linear(SIZE, SIZE), nn.Sequential(nn.Tanh(), nn.Linear(SIZE, SIZE))]
    optimizer = pybuda.optimizers.Adam(0.01, device_params=True)
    if devices == 1:
        first = pybuda.TTDevice(
            "tt0",
            module=[pybuda.PyTorchModule(f"{k}", part) for k, part in enumerate(parts)],
            optimizer=optimizer,
        )
        last: pybuda.Device = first
    else:
        first = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("0", parts[0]), optimizer=optimizer)
        last = pybuda.CPUDevice(
            "cpu1",
            optimizer_f=lambda p: torch.optim.Adam(p, lr=0.01),
            module=pybuda.PyTorchModule("1", parts[1]),
        )
    last.place_loss_module(pybuda.PyTorchModule("mse", nn.MSELoss()))
    for _ in range(2 * 3 * 2):
        first.push_to_inputs(torch.rand(4, SIZE))
        last.push_to_target_inputs(torch.rand(4, SIZE))
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.run_training(
        epochs=1, steps=2, accumulation_steps=2, microbatch_count=3, loss_queue=losses, _sequential=sequential
    )
    got = [read(losses)[0] for _ in range(12)]
    final = {}
    for part in checkpoints.get(timeout=SECONDS):
        final.update({name: tensor.value() for name, tensor in part.items()})
    pybuda.pybuda_reset()
    return got, final


def reference() -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    torch.manual_seed(5)
    parts = [nn.Linear(SIZE, SIZE), nn.Sequential(nn.Tanh(), nn.Linear(SIZE, SIZE))]
    optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=0.01)
    data = [(torch.rand(4, SIZE), torch.rand(4, SIZE)) for _ in range(12)]
    losses = []
    for number, (x, target) in enumerate(data):
        if number % 6 == 0:
            optimizer.zero_grad()
        loss = nn.functional.mse_loss(parts[1](parts[0](x)), target)
        loss.backward()
        losses.append(loss.detach())
        if number % 6 == 5:
            optimizer.step()
    return losses, {name: p.detach() for part in parts for name, p in part.named_parameters()}


@pytest.mark.parametrize(("sequential", "devices"), [(False, 1), (False, 2), (True, 2)])
def test_training_equals_plain_pytorch(sequential: bool, devices: int) -> None:
    losses, parameters = reference()
    got, final = trained(sequential, devices)
    assert_same(got, losses)
    assert final.keys() == parameters.keys()
    torch.testing.assert_close(final, parameters, rtol=0, atol=0)


def manual() -> tuple[pybuda.TTDevice, pybuda.CPUDevice]:
    tt0 = pybuda.TTDevice(
        "tt0", module=Echo("front"), optimizer=pybuda.optimizers.SGD(0.1, device_params=True)
    )
    cpu1 = pybuda.CPUDevice(
        "cpu1",
        module=pybuda.PyTorchModule("back", Blend()),
        # Called with a list that has parameters() too: both ways of writing it work.
        optimizer_f=lambda m: torch.optim.SGD(m.parameters(), lr=0.5),
    )
    cpu1.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    return tt0, cpu1


def test_training_by_hand() -> None:
    tt0, cpu1 = manual()
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.initialize_pipeline(
        training=True, output_queue=losses, sample_inputs=inputs(), sample_targets=(inputs()[0],)
    )
    before = pybuda.get_parameter_checkpoint()
    for step in range(2):
        for accumulated in range(2):
            tt0.push_to_inputs(inputs())
            cpu1.push_to_target_inputs(inputs()[0])
            pybuda.run_forward(input_count=1)
            pybuda.run_backward(input_count=1, zero_grad=accumulated == 0)
        pybuda.run_optimizer(checkpoint=True)
        parts = checkpoints.get(timeout=SECONDS)
        assert [sorted(part) for part in parts] == [
            ["front.delayed", "front.direct"],
            ["left", "right"],
        ], step
    assert len([read(losses) for _ in range(4)]) == 4
    assert_same(
        [parts[0][k].value() for k in parts[0]],
        [pybuda.get_parameter_checkpoint(tt0)[0][k].value() for k in parts[0]],
    )
    assert not torch.equal(parts[1]["left"].value(), before[1]["left"].value())
    # SGD: the step is the gradient times the rate.
    grads = pybuda.get_parameter_gradients()
    assert [sorted(part) for part in grads] == [sorted(part) for part in parts]
    assert all(grad.value().abs().sum() > 0 for part in grads for grad in part.values())


def test_parameters_updated_on_the_host() -> None:
    tt0, cpu1 = manual()
    pybuda.initialize_pipeline(training=True, sample_inputs=inputs(), sample_targets=(inputs()[0],))
    tt0.push_to_inputs(inputs())
    cpu1.push_to_target_inputs(inputs()[0])
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    grads = pybuda.get_parameter_gradients(tt0)
    params = pybuda.get_parameter_checkpoint(tt0)
    for name in params[0]:
        params[0][name].value().grad = grads[0][name].value()
    torch.optim.SGD([p.value() for p in params[0].values()], lr=10.0).step()
    pybuda.update_device_parameters(tt0, params)
    now = pybuda.get_parameter_checkpoint(tt0)[0]
    assert_same([now[k].value() for k in now], [params[0][k].value() for k in now])
    with pytest.raises(PyBudaError, match="1 dicts of parameters for 2 devices"):
        pybuda.update_device_parameters(parameters=params)
    with pytest.raises(PipelineError, match="no parameter 'other'"):
        pybuda.update_device_parameters(tt0, [{"other": torch.ones(1)}])
    with pytest.raises(PyBudaError, match="parameters is dict; it is a list"):
        pybuda.update_device_parameters(tt0, params[0])  # type: ignore[arg-type]
    with pytest.raises(PyBudaError, match="not part of the running pipeline"):
        pybuda.get_parameter_checkpoint(pybuda.CPUDevice("unused"))


@pytest.mark.parametrize("kind", [queue.Queue, multiprocessing.get_context("spawn").Queue])
def test_device_to_device_queues(kind: Any) -> None:
    tt0 = pybuda.TTDevice("tt0", module=Echo("front"))
    pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("back", Blend()))
    cpu2 = pybuda.CPUDevice("cpu2", module=pybuda.PyTorchModule("end", nn.Linear(SIZE, SIZE)))
    cpu2.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    forward, backward = [kind(), kind()], [kind(), kind()]
    target = inputs()[0]
    pybuda.initialize_pipeline(
        training=True,
        d2d_fwd_queues=forward,
        d2d_bwd_queues=backward,
        sample_inputs=inputs(),
        sample_targets=(target,),
    )
    tt0.push_to_inputs(inputs())
    cpu2.push_to_target_inputs(target)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    assert [len(read(q)) for q in forward] == [2, 1]
    assert [len(read(q)) for q in backward] == [2, 1]
    with pytest.raises(PipelineError, match="3 forward"):
        pybuda.initialize_pipeline(
            training=False, d2d_fwd_queues=[queue.Queue() for _ in range(3)], sample_inputs=inputs()
        )


def test_wrong_calls_of_training() -> None:
    for call in (pybuda.run_forward, pybuda.run_backward, pybuda.run_optimizer, pybuda.run_schedulers):
        with pytest.raises(PyBudaError, match="initialize_pipeline"):
            call()
    with pytest.raises(PyBudaError, match="sample_targets"):
        pybuda.initialize_pipeline(training=False, sample_targets=(torch.ones(1),))
    with pytest.raises(RuntimeError, match="checkpoint_queue"):
        pybuda.initialize_pipeline(training=False, checkpoint_queue=queue.Queue())
    for name in ("epochs", "steps", "accumulation_steps", "microbatch_count"):
        with pytest.raises(RuntimeError, match=f"{name} is 0"):
            pybuda.run_training(**{name: 0})
    with pytest.raises(PyBudaError, match="nothing is placed"):
        pybuda.run_training()
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    cpu1 = pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("n", nn.Identity()))
    with pytest.raises(PyBudaError, match="it is placed on no device"):
        pybuda.run_training()
    tt0.place_loss_module(pybuda.op.loss.L1Loss("early"))
    with pytest.raises(PyBudaError, match="last device, 'cpu1', and there alone; it is placed on tt0"):
        pybuda.run_training()
    tt0.remove_loss_module()
    cpu1.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    tt0.push_to_inputs(torch.ones(1, SIZE))
    with pytest.raises(PyBudaError, match="Targets must be pushed"):
        pybuda.run_training()


def test_schedulers_reach_the_devices() -> None:
    class Halving(pybuda.schedulers.LearningRateScheduler):
        def get_lr(self) -> float:
            return self.optimizer.learning_rate / 2

    optimizer = pybuda.optimizers.SGD(1.0, device_params=True)
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"), optimizer=optimizer, scheduler=Halving(optimizer))
    tt0.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    pybuda.initialize_pipeline(
        training=True, sample_inputs=(torch.ones(1, SIZE),), sample_targets=(torch.ones(1, SIZE),)
    )
    for sequential in (True, False):
        pybuda.run_schedulers(sequential)
    pybuda.sync()
    assert optimizer.learning_rate == 0.25
    assert tt0.stage is not None
    assert tt0.stage.optimizer.param_groups[0]["lr"] == 0.25
    assert tt0.get_scheduler_params(is_buda=False) == {"m.basis": {"learning_rate": 0.25}}
    assert tt0.get_optimizer_params(is_buda=False) == {"m.basis": {"learning_rate": 0.25}}


def test_retain_backward_graph() -> None:
    kept: list[torch.Tensor] = []

    class Watched(nn.Module):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            kept.append((x * x * target).sum())
            return kept[-1]

    for retained in (True, False):
        cpu0 = pybuda.CPUDevice(
            f"cpu{retained}",
            module=pybuda.PyTorchModule("l", nn.Linear(1, 1)),
            retain_backward_graph=retained,
        )
        cpu0.place_loss_module(pybuda.PyTorchModule("loss", Watched()))
        cpu0.push_to_inputs(torch.ones(1, 1))
        cpu0.push_to_target_inputs(torch.ones(1, 1))
        pybuda.run_training()
        pybuda.sync()
        if retained:
            kept[-1].backward()
        else:
            with pytest.raises(RuntimeError, match="second time"):
                kept[-1].backward()
        pybuda.pybuda_reset()

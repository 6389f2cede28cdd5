"""Modules of TensorFlow itself; skipped without it. The job `.ci/tensorflow` installs it and runs this."""

from __future__ import annotations

import queue
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom import pybuda
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.config import _get_global_compiler_config

tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make check-tensorflow")

WIDTHS = (6, 8, 3)


def pair() -> tuple[Any, nn.Module]:
    """The same network in TensorFlow and in PyTorch."""
    torch.manual_seed(0)
    first, second, third = WIDTHS
    twin = nn.Sequential(nn.Linear(first, second), nn.Tanh(), nn.Linear(second, third))
    layers = tensorflow.keras.layers
    model = tensorflow.keras.Sequential(
        [layers.Input((first,)), layers.Dense(second, activation="tanh"), layers.Dense(third)]
    )
    values = [value.detach().numpy() for value in twin.parameters()]
    model.set_weights([value.T if value.ndim == 2 else value for value in values])
    return model, twin


def test_called_by_hand() -> None:
    model, twin = pair()
    module = pybuda.TFModule("m", model)
    x = torch.rand(4, WIDTHS[0])
    made = module.forward(x)
    assert isinstance(made, tensorflow.Tensor)
    torch.testing.assert_close(torch.tensor(made.numpy()), twin(x).detach())
    module.backward((made, tensorflow.ones_like(made)))
    twin(x).sum().backward()
    wanted = [value.grad.T if value.dim() == 2 else value.grad for value in twin.parameters()]
    for gradient, want in zip(module.gradients, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(gradient.numpy()), want)
    assert [parameter.shape for parameter in module.get_parameters()] == [(6, 8), (8,), (8, 3), (3,)]


def test_it_trains_in_a_pipeline_as_pytorch_does() -> None:
    model, twin = pair()
    module = pybuda.TFModule("m", model)
    # A PyTorch module first, so that gradients leave the TensorFlow one.
    before = nn.Linear(WIDTHS[0], WIDTHS[0])
    both = nn.Sequential(nn.Linear(WIDTHS[0], WIDTHS[0]), twin)
    both[0].load_state_dict(before.state_dict())
    cpu0 = pybuda.CPUDevice(
        "cpu0",
        module=[pybuda.PyTorchModule("before", before), module],
        optimizer_f=lambda parameters: torch.optim.SGD(parameters.parameters(), 0.1),
    )
    cpu0.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    x, target = torch.rand(4, WIDTHS[0]), torch.rand(4, WIDTHS[-1])
    for _ in range(3):
        cpu0.push_to_inputs(x)
        cpu0.push_to_target_inputs(target)
    losses: queue.Queue[Any] = queue.Queue()
    pybuda.run_training(epochs=1, steps=3, loss_queue=losses, _sequential=True)
    optimizer = torch.optim.SGD(both.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(both(x), target)
        assert float(losses.get(timeout=60)[0].value()) == pytest.approx(float(loss), rel=1e-5)
        loss.backward()
        optimizer.step()
    module.update()
    torch.testing.assert_close(torch.tensor(model(both[0](x).detach().numpy()).numpy()), both(x).detach())
    torch.testing.assert_close(before.weight, both[0].weight)


def test_by_the_loop_of_the_device() -> None:
    model, twin = pair()
    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.TFModule("m", model))
    shape = pybuda.Tensor.create_from_trace("x", (4, WIDTHS[0]), pybuda.DataFormat.Float32)
    [traced] = cpu0.compile_for_tf((shape,), _get_global_compiler_config(), microbatch_size=4)
    assert tuple(traced.shape) == (4, WIDTHS[-1])
    x = torch.rand(4, WIDTHS[0])
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(x,))
    cpu0.push_to_inputs(x)
    cpu0.forward_tf(1)
    torch.testing.assert_close(results.get(timeout=60)[0].value(), twin(x).detach())
    name, weight = next(iter(cpu0.get_parameter_checkpoint().items()))
    double = {name: 2 * weight.value()}
    [made] = cpu0.cpueval_forward_tf([x], double, save_for_backward=True)
    with torch.no_grad():
        twin[0].weight *= 2
    torch.testing.assert_close(made, twin(x).detach())
    [gradient], gradients = cpu0.cpueval_backward([torch.ones_like(made)], {})
    leaf = x.clone().requires_grad_()
    twin(leaf).sum().backward()
    torch.testing.assert_close(gradient, leaf.grad)
    torch.testing.assert_close(gradients[name], twin[0].weight.grad.T)
    # The copy that verified has changed nothing of the device's.
    cpu0.push_to_inputs(x)
    cpu0.forward_tf(1)
    with torch.no_grad():
        twin[0].weight /= 2
    torch.testing.assert_close(results.get(timeout=60)[0].value(), twin(x).detach())


def test_where_it_does_not_run() -> None:
    model, _ = pair()
    with pytest.raises(PyBudaError, match="runs on CPU devices only: place it on a CPUDevice"):
        pybuda.TTDevice("tt0", module=pybuda.TFModule("m", model))
    spawn = torch.multiprocessing.get_context("spawn")
    with pytest.raises(PyBudaError, match="without mp_context"):
        pybuda.CPUDevice("cpu0", mp_context=spawn, module=pybuda.TFModule("m", model))

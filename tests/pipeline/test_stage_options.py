"""A stage may compute again what its backward needs, and share its modules among several devices."""

from __future__ import annotations

import copy
import queue
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom import pybuda
from torch_loom.pipeline import Pipeline, Stage

SECONDS = 60
WIDTH = 64


def model() -> nn.Sequential:
    """Layers whose activations are most of the memory of training; one draws random numbers."""
    torch.manual_seed(4)
    layers = [part for _ in range(6) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(*layers, nn.Dropout(0.5))


def trained(recompute: bool, loss_device: str = "loom:0") -> tuple[list[float], dict[str, torch.Tensor], int]:
    """Losses, gradients, and the most memory that forwards and backwards took."""
    losses: queue.Queue[Any] = queue.Queue()
    stage = Stage("all", model(), loss_device, loss=nn.MSELoss(), recompute=recompute)
    with Pipeline([stage]) as pipeline:
        pipeline.start(training=True, losses=losses)
        torch.manual_seed(5)
        for _ in range(8):
            pipeline.push(torch.rand(256, WIDTH))
            pipeline.push_target(torch.rand(256, WIDTH))
        torch.loom.reset_peak_memory_stats(0)  # type: ignore[attr-defined]
        pipeline.forward(8)
        pipeline.backward(8)
        got = [float(losses.get(timeout=SECONDS)[0]) for _ in range(8)]
        grads = pipeline.gradients()[0]
        return got, grads, torch.loom.max_memory_allocated(0)  # type: ignore[attr-defined]


def test_recomputing_changes_no_bit_and_saves_memory() -> None:
    losses, grads, peak = trained(recompute=False)
    again, same, less = trained(recompute=True)
    assert again == losses
    assert all(torch.equal(same[name], grads[name]) for name in grads)
    assert less < 0.6 * peak


def test_the_configuration_asks_for_it() -> None:
    pybuda.pybuda_reset()
    try:
        pybuda.set_configuration_options(enable_recompute=True)
        device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", model()))
        assert device.make_stage().recompute
    finally:
        pybuda.pybuda_reset()


@pytest.mark.parametrize("training", [False, True])
def test_several_chips_of_a_device_share_its_modules(training: bool) -> None:
    pybuda.pybuda_reset()
    torch.manual_seed(6)
    parts = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8), nn.Tanh()]
    twins = copy.deepcopy(parts)
    x, target = torch.rand(4, WIDTH), torch.rand(4, 8)
    try:
        device = pybuda.TTDevice("tt0", num_chips=2, optimizer=pybuda.SGD(0.1, device_params=True))
        device.place_module([pybuda.PyTorchModule(f"m{k}", part) for k, part in enumerate(parts)])
        expected = nn.Sequential(*twins)(x)
        if training:
            device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
            device.push_to_target_inputs(target)
        device.push_to_inputs(x)
        if not training:
            got = pybuda.run_inference().get(timeout=SECONDS)[0].value()
            assert torch.equal(got, expected)
        else:
            checkpoint = pybuda.run_training().get(timeout=SECONDS)[0]
            nn.functional.mse_loss(expected, target).backward()
            for number, twin in ((0, twins[0]), (2, twins[2])):
                torch.optim.SGD(twin.parameters(), 0.1).step()
                for name, value in twin.named_parameters():
                    assert torch.equal(checkpoint[f"m{number}.{name}"].value(), value)
        stage = device.make_stage()
        where = [
            next(module.parameters()).device.index
            for module in stage.modules.values()
            if list(module.parameters())
        ]
        assert where == [0, 1]
    finally:
        pybuda.pybuda_reset()

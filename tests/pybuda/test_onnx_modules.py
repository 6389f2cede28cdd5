"""OnnxModule: on CPU and TT devices, in inference and in training, equal to the model that was exported."""

from __future__ import annotations

import functools
import multiprocessing
import queue
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.compiler.onnx_files.models import MODELS, parsed, saved
from torch_loom import pybuda
from torch_loom.errors import OnnxError

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed: pip install onnx")

Silicon, Golden = pybuda.BackendType.Silicon, pybuda.BackendType.Golden


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_onnx_module_equals_pytorch(name: str, tmp_path: Path) -> None:
    model, inputs = MODELS[name]()
    path = saved(tmp_path / "model.onnx", model, inputs)
    wanted = model(*inputs)
    module = pybuda.OnnxModule(name, onnx.load(path), str(path))
    for make in (pybuda.CPUDevice, functools.partial(pybuda.TTDevice, devtype=Golden)):
        device = make("device", module=module)
        device.push_to_inputs(inputs)
        outputs = pybuda.run_inference(_sequential=True).get(timeout=100)
        for made, want in zip(outputs, wanted, strict=True):
            torch.testing.assert_close(made.value().detach(), want.detach(), rtol=1e-5, atol=1e-5)
        pybuda.pybuda_reset()


def test_in_the_formats_of_a_chip_it_rounds_as_the_module_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).eval()
    x = torch.randn(4, 32)
    path = saved(tmp_path / "model.onnx", model, (x,))
    results = []
    for module in (pybuda.PyTorchModule("m", model), pybuda.OnnxModule("m", None, str(path))):
        tt0 = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, devtype=Silicon, module=module)
        pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Bfp8_b)
        tt0.push_to_inputs(x)
        results.append(pybuda.run_inference(_sequential=True).get(timeout=60)[0].value())
        pybuda.pybuda_reset()
    torch.testing.assert_close(results[1], results[0], rtol=0.02, atol=0.02)
    assert not torch.allclose(results[1], model(x), rtol=1e-5, atol=1e-5)


def trainable(folder: Path) -> tuple[nn.Module, Path, torch.Tensor, torch.Tensor]:
    """A model, its file with all weights, an input and a target."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    x, target = torch.randn(4, 8), torch.randn(4, 2)
    preserve = torch.onnx.TrainingMode.PRESERVE
    path = saved(folder / "m.onnx", model, (x,), training=preserve, do_constant_folding=False)
    return model, path, x, target


def test_its_weights_are_trained(tmp_path: Path) -> None:
    model, path, x, target = trainable(tmp_path)
    module = pybuda.OnnxModule("m", None, str(path))
    optimizer = pybuda.optimizers.SGD(learning_rate=0.1, device_params=True)
    tt0 = pybuda.TTDevice("tt0", devtype=Golden, module=module, optimizer=optimizer)
    tt0.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    losses: queue.Queue[Any] = queue.Queue()
    for _ in range(2):
        tt0.push_to_inputs(x)
        tt0.push_to_target_inputs(target)
    pybuda.run_training(epochs=1, steps=2, loss_queue=losses, _sequential=True)
    reference = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        reference.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        assert float(losses.get(timeout=60)[0].value()) == pytest.approx(float(loss), rel=1e-5)
        loss.backward()
        reference.step()
    [trained] = pybuda.get_parameter_checkpoint(tt0)
    for name, value in model.named_parameters():
        torch.testing.assert_close(trained[name].value(), value.detach(), rtol=1e-5, atol=1e-6)


def test_called_by_hand(tmp_path: Path) -> None:
    model = parsed("y = Mul (x, w)", "(float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}>")
    module = pybuda.OnnxModule("m", model, "")
    assert [(parameter.get_name(), parameter.shape) for parameter in module.get_parameters()] == [("w", (3,))]
    made = module.forward(torch.ones(2, 3))
    module.backward((made, torch.ones_like(made)))
    assert module.module.w.grad.tolist() == [2.0, 2.0, 2.0]
    assert torch.equal(module.call(torch.ones(2, 3)), made)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    by_path = pybuda.OnnxModule("n", path, str(path))
    assert torch.equal(by_path.forward(torch.ones(2, 3)), made)
    assert by_path.onnx_path == path
    with pytest.raises(OnnxError, match="no such file"):
        pybuda.OnnxModule("n", None, str(tmp_path / "none.onnx"))


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    model, path, x, target = trainable(tmp_path)
    module = pybuda.OnnxModule("m", onnx.load(path), str(path))
    path.unlink()  # the process gets the graph and its weights, not the file
    tt0 = pybuda.TTDevice(
        "tt0",
        devtype=Golden,
        module=module,
        mp_context=multiprocessing.get_context("spawn"),
        optimizer=pybuda.optimizers.SGD(learning_rate=0.1, device_params=True),
    )
    tt0.push_to_inputs(x)
    [made] = pybuda.run_inference(_sequential=True).get(timeout=100)
    torch.testing.assert_close(made.value(), model(x).detach(), rtol=1e-5, atol=1e-5)
    pybuda.shutdown()
    tt0.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    for _ in range(2):
        tt0.push_to_inputs(x)
        tt0.push_to_target_inputs(target)
    pybuda.run_training(steps=2, _sequential=True)
    pybuda.shutdown()
    reference = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        reference.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        reference.step()
    trained = tt0.get_parameter_checkpoint()
    for name, value in model.named_parameters():
        torch.testing.assert_close(trained[name].value(), value.detach(), rtol=1e-5, atol=1e-6)

"""Images of devices, graphs of their modules, and descriptions of their queues."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torch_loom
from tests.image.forged import ABSENT, forged
from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import ImageError, PyBudaError, VerificationError
from torch_loom.pybuda.enums import BackendDevice, BackendType

X = torch.linspace(-1, 1, 4 * SIZE).reshape(4, SIZE)
CHIP: Any = {"arch": BackendDevice.Wormhole_B0, "devtype": BackendType.Golden}


@pytest.mark.long
@pytest.mark.parametrize("devtype", [BackendType.Golden, BackendType.Silicon])
def test_an_image_runs_as_its_device_did(devtype: BackendType, tmp_path: Path) -> None:
    path = str(tmp_path / "echo.tti")
    given, module = inputs(), Echo("m")
    device = pybuda.TTDevice("tt0", arch=BackendDevice.Wormhole_B0, devtype=devtype, module=module)
    device.place_module(pybuda.PyTorchModule("then", Blend()))
    image = device.compile_to_image(img_path=path, sample_inputs=given)
    assert image.get_input_shapes() == [tuple(value.shape) for value in given]
    assert (image.get_target_shapes(), image.is_compiled_for_training()) == ([], False)
    assert "modules: m, then" in image.info()
    assert "wormhole_b0" in image.info()
    device.push_to_inputs(given)
    expected = pybuda.run_inference().get(timeout=60)[0].value()
    pybuda.pybuda_reset()
    loaded = pybuda.TTDevice.load_image(img_path=path, device_id_overrides=[1])
    assert (loaded.device_mode, loaded.chip_ids) == (pybuda.DeviceMode.RunOnly, [1])
    loaded.push_to_inputs(given)
    got = pybuda.run_inference().get(timeout=60)[0].value()
    if devtype is BackendType.Golden:
        assert torch.equal(got, expected)
    else:
        torch.testing.assert_close(got, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))
    with pytest.raises(PyBudaError, match="RunOnly"):
        loaded.compile_for(())


def test_images_that_cannot_be(tmp_path: Path) -> None:
    path = str(tmp_path / "x.tti")
    open_ended = pybuda.TTDevice("open", module=Projection("a"))
    with pytest.raises(PyBudaError, match="arch= and devtype="):
        open_ended.compile_to_image(img_path=path, sample_inputs=(torch.ones(1, SIZE),))
    device = pybuda.TTDevice("tt0", module=Projection("b"), **CHIP)
    with pytest.raises(PyBudaError, match="sample_inputs"):
        device.compile_to_image(img_path=path)
    with pytest.raises(PyBudaError, match="targets are for training"):
        device.compile_to_image(img_path=path, sample_inputs=(X,), sample_targets=(X,))
    with pytest.raises(PyBudaError, match="place_loss_module"):
        device.compile_to_image(img_path=path, training=True, sample_inputs=(X,), sample_targets=(X,))
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    with pytest.raises(PyBudaError, match="sample_targets"):
        device.compile_to_image(img_path=path, training=True, sample_inputs=(X,))
    with pytest.raises(PyBudaError, match="either img or img_path"):
        pybuda.TTDevice.load_image()
    with pytest.raises(ImageError):
        pybuda.TTDeviceImage.load_from_disk(path)
    plain = nn.Linear(2, 2).to("loom").eval()
    torch_loom.compile(plain, (torch.ones(1, 2, device="loom"),)).save(path)
    with pytest.raises(ImageError, match="loom run-image"):
        pybuda.TTDevice.load_image(img_path=path)


class Tied(nn.Module):
    """One matrix in two layers, statistics that runs update, dropout, and a parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = nn.Parameter(torch.zeros(3))
        self.first, self.second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.second.weight = self.first.weight
        self.norm, self.drop = nn.BatchNorm1d(SIZE), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.norm(self.second(self.first(x)).relu()))


def _trained(device: Any) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Train by a few micro-batches; return the losses and the parameters, by name."""
    torch.manual_seed(3)
    for _ in range(3):
        device.push_to_inputs(torch.rand(4, SIZE))
        device.push_to_target_inputs(torch.rand(4, SIZE))
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.run_training(steps=3, loss_queue=losses)
    state = {name: one.value() for name, one in checkpoints.get(timeout=60)[0].items()}
    return [losses.get(timeout=60)[0].value() for _ in range(3)], state


LOSSES: dict[str, Any] = {
    "PyBuda's": lambda: pybuda.op.loss.L1Loss("loss"),
    "PyTorch's": lambda: pybuda.PyTorchModule("loss", nn.SmoothL1Loss(beta=0.5)),
}


@pytest.mark.long
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("devtype", [BackendType.Golden, BackendType.Silicon])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_an_image_trains_as_its_device_did(
    devtype: BackendType, loss: Any, is_mixed: bool, tmp_path: Path
) -> None:
    path = str(tmp_path / "step.tti")
    if is_mixed:
        pybuda.config.configure_mixed_precision(op_type="matmul", output_df=pybuda.DataFormat.Bfp8_b)
    device = pybuda.TTDevice(
        "tt0",
        arch=BackendDevice.Wormhole_B0,
        devtype=devtype,
        module=[pybuda.PyTorchModule("tied", Tied()), Projection("m")],
        optimizer=pybuda.optimizers.LARS(0.05, lars_coeff=0.5, device_params=True),
    )
    device.place_loss_module(loss())
    image = device.compile_to_image(
        img_path=path, training=True, sample_inputs=(X,), sample_targets=(torch.ones(4, SIZE),)
    )
    assert (image.get_target_shapes(), image.is_compiled_for_training()) == ([(4, SIZE)], True)
    expected_losses, expected = _trained(device)
    pybuda.pybuda_reset()
    loaded = pybuda.TTDevice.load_image(img_path=path)
    assert [parameter.get_name() for parameter in loaded.modules[0].get_parameters()] == list(expected)
    got_losses, got = _trained(loaded)
    # Without mixed precision the device ran op by op, which rounds some gradients of norms elsewhere.
    is_exact = is_mixed or devtype is BackendType.Golden
    near: Any = {} if is_exact else {"rtol": 0.02, "atol": 0.02}
    for a, b in zip(got_losses, expected_losses, strict=True):
        torch.testing.assert_close(a, b, **(near or {"rtol": 0, "atol": 0}))
    assert list(got) == list(expected)
    for name, value in got.items():
        torch.testing.assert_close(value, expected[name], **(near or {"rtol": 0, "atol": 0}))
    assert not torch.equal(got["m.basis"], loaded.modules[0].get_parameters()[-1].value())
    loaded.push_to_inputs(X)
    with pytest.raises(PyBudaError, match="an image for training"):
        pybuda.run_inference()


class Weighted(nn.Module):
    """A loss with a parameter, which is trained, too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE))

    def forward(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return ((x - wanted).abs() * self.weight).mean()


@pytest.mark.long
def test_parameters_of_a_loss_keep_their_names(tmp_path: Path) -> None:
    path = str(tmp_path / "step.tti")
    optimizer = pybuda.optimizers.SGD(np.float32(0.25), device_params=True)  # type: ignore[arg-type]
    device = pybuda.TTDevice("tt0", module=Projection("m"), optimizer=optimizer, **CHIP)
    device.place_loss_module(pybuda.PyTorchModule("loss", Weighted()))
    device.compile_to_image(img_path=path, training=True, sample_inputs=(X,), sample_targets=(X,))
    _, expected = _trained(device)
    pybuda.pybuda_reset()
    loaded = pybuda.TTDevice.load_image(img_path=path)
    _, got = _trained(loaded)
    assert list(got) == list(expected) == ["m.basis", "loss.weight"]
    assert all(torch.equal(got[name], expected[name]) for name in got)
    with pytest.raises(PyBudaError, match="no modules to compare with"):
        loaded.reference_stage()
    with pytest.raises(ImageError, match=r"TTDevice\.load_image"):
        torch_loom.Executable.load(path)


@pytest.mark.long
def test_what_an_image_for_training_holds(tmp_path: Path) -> None:
    path = str(tmp_path / "step.tti")
    module = Projection("m")
    chosen = pybuda.optimizers.AdamW(0.5, weight_decay=0.25, parameters=module.get_parameters())
    device = pybuda.TTDevice("tt0", module=module, optimizer=chosen, **CHIP)
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    arguments: Any = {"img_path": path, "training": True, "sample_inputs": (X,), "sample_targets": (X,)}
    device.scheduler = pybuda.schedulers.LearningRateScheduler(chosen)
    with pytest.warns(UserWarning, match="a scheduler is code"):
        device.compile_to_image(**arguments)
    loaded = pybuda.TTDevice.load_image(img_path=path)
    optimizer: Any = loaded.optimizer
    assert type(optimizer) is pybuda.optimizers.AdamW
    assert (optimizer.learning_rate, optimizer.weight_decay) == (0.5, 0.25)
    assert [parameter.get_name() for parameter in optimizer.parameters] == ["m.basis"]

    class Own(pybuda.optimizers.SGD):
        """A class that is code of a program."""

    device.optimizer, device.scheduler = Own(0.1, device_params=True), None
    with pytest.raises(PyBudaError, match="own class Own"):
        device.compile_to_image(**arguments)
    device.compile_to_image(img_path=path, sample_inputs=(X,))
    pybuda.pybuda_reset()
    inference = pybuda.TTDevice.load_image(img_path=path)
    inference.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    inference.push_to_inputs(X)
    inference.push_to_target_inputs(X)
    with pytest.raises(PyBudaError, match="an image for inference"):
        pybuda.run_training()


@pytest.mark.parametrize("devtype", [BackendType.Golden, BackendType.Silicon])
def test_parameters_of_an_image_may_be_set(devtype: BackendType, tmp_path: Path) -> None:
    path = str(tmp_path / "tied.tti")
    net, other = Tied(), torch.rand(SIZE, SIZE)
    chip: Any = {**CHIP, "devtype": devtype}
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", net), **chip)
    device.compile_to_image(img_path=path, sample_inputs=(X,))
    pybuda.pybuda_reset()

    def run(on: Any) -> torch.Tensor:
        on.push_to_inputs(X)
        found: torch.Tensor = pybuda.run_inference().get(timeout=60)[0].value()
        return found

    loaded = pybuda.TTDevice.load_image(img_path=path)
    module: Any = loaded.modules[0]
    module.set_parameter("first.weight", other)
    before = run(loaded)
    pybuda.update_device_parameters(parameters=[{"first.weight": 2 * other}])
    after = run(loaded)
    pybuda.pybuda_reset()
    net.first.weight.data.copy_(other)
    for got, factor in ((before, 1), (after, 2)):
        expected = pybuda.TTDevice("tt1", module=pybuda.PyTorchModule("m", net), **chip)
        assert torch.equal(got, run(expected))
        pybuda.pybuda_reset()
        net.first.weight.data.mul_(2 / factor)
    for name, value, words in (
        ("third", other, r"no parameters 'third'; it has unread, first\.weight"),
        ("bias", other, "3 parameters 'bias'"),
        ("first.bias", other, "has shape"),
    ):
        with pytest.raises(PyBudaError, match=words):
            module.set_parameter(name, value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("training",), 3),
        (("training", "targets"), [["x"]]),
        (("training", "targets"), ABSENT),
        (("training", "loss"), ABSENT),
        (("training", "loss", "program", "calls"), [{"name": "x", "op": "os::system", "args": []}]),
        (("training", "optimizer", "type"), "Own"),
        (("training", "optimizer", "learning_rate"), "x"),
        (("training", "optimizer", "unknown"), 1),
        (("training", "optimizer", "parameters"), ["unknown"]),
        (("arch",), 3),
        (("chip_ids",), ABSENT),
    ],
)
def test_forged_images_for_training_are_refused(place: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    path = tmp_path / "step.tti"
    optimizer = pybuda.optimizers.SGD(0.1, device_params=True)
    device = pybuda.TTDevice("tt0", module=Projection("m"), optimizer=optimizer, **CHIP)
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    device.compile_to_image(img_path=str(path), training=True, sample_inputs=(X,), sample_targets=(X,))
    pybuda.pybuda_reset()
    wrong = forged(path, ("pybuda", *place), value)
    with pytest.raises(ImageError, match=r"forged|os::system"):
        _trained(pybuda.TTDevice.load_image(img_path=str(wrong)))


@pytest.mark.long
def test_an_image_may_be_verified(tmp_path: Path) -> None:
    device = pybuda.TTDevice("tt0", module=Projection("m"), **CHIP)
    x = torch.rand(2, SIZE)
    arguments: Any = {"img_path": str(tmp_path / "x.tti"), "sample_inputs": (x,)}
    config = pybuda.VerifyConfig()
    right = [x @ device.modules[0].basis.value()]  # type: ignore[attr-defined]
    with pytest.raises(VerificationError, match="output 0 differs"):
        device.compile_to_image(**arguments, verify_cfg=config, cpueval_outputs=[-right[0]])
    late = pybuda.VerifyConfig(verify_last=False)
    with pytest.raises(PyBudaError, match="has 1 outputs; 2 are to be compared"):
        device.compile_to_image(**arguments, verify_cfg=late, cpueval_outputs=right * 2)
    assert not list(tmp_path.iterdir())  # nothing is written that differs
    device.compile_to_image(**arguments, verify_cfg=config, cpueval_outputs=right)


def test_graphs() -> None:
    device = pybuda.TTDevice("tt0", module=Echo("m"))
    given = [pybuda.Tensor.create_from_torch(value) for value in inputs()]
    graph, outputs, values, originals, target = device.generate_graph(
        *given, return_intermediate=True, graph_name="echo"
    )
    kinds = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert sum("matmul" in kind or "mm" in kind for kind in kinds) == 2
    assert graph.owning_module.name == "echo"
    expected = device.modules[0].reference(*(value.value() for value in given))  # type: ignore[attr-defined]
    for got, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(got.value(), wanted)
    assert any(torch.equal(value.value(), outputs[0].value()) for value in values.values())
    assert (originals, target) == (tuple(given), None)
    shapes = [pybuda.Tensor.create_from_trace("x", (4, SIZE, SIZE), pybuda.DataFormat.Float32)] * 2
    _, outputs, _, _ = device.generate_graph(*shapes)
    assert [(out.has_value(), tuple(out.shape)) for out in outputs] == [(False, (4, SIZE, SIZE))] * 2
    with pytest.raises(PyBudaError, match="needs the inputs"):
        device.generate_graph()
    device.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    with pytest.raises(PyBudaError, match="target_tensors"):
        device.generate_graph(*given)


def test_queues_are_described() -> None:
    device = pybuda.TTDevice("tt0", module=Projection("m"), chip_ids=[1])
    device.push_to_inputs(torch.ones(2, SIZE))
    [described], [broadcast], [shape] = device.get_dram_io_queues("input")
    assert described == {"name": "tt0_input_0", "entries": 1024, "on_host": True, "chip": 1}
    assert (broadcast, shape) == (None, (2, SIZE))
    assert device.get_dram_io_queues("parameter")[2] == [(SIZE, SIZE)]
    assert device.get_dram_io_queues("output")[0][0]["name"] == "tt0_output_0"
    assert device.get_dram_io_queues("target")[2] == []
    with pytest.raises(PyBudaError, match="'weights' is none of"):
        device.get_dram_io_queues("weights")


@pytest.mark.long
def test_compile_for_has_the_configuration_that_it_is_given(tmp_path: Path) -> None:
    device = pybuda.TTDevice("tt0", module=Projection("p"), arch=BackendDevice.Wormhole_B0)
    x = pybuda.Tensor.create_from_torch(torch.rand(2, SIZE))
    config = pybuda.CompilerConfig(backend_output_dir=tmp_path, balancer_policy="MinimizeGrid")
    device.compile_for((x,), config)
    assert "grid_size: [1, 1]" in (tmp_path / "tt0/netlist.yaml").read_text()
    (tmp_path / "tt0/netlist.yaml").unlink()
    device.compile_for((x,))
    assert not (tmp_path / "tt0/netlist.yaml").exists()


def test_compile_for_verifies() -> None:
    class Differs(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.device.type in ("cpu", "meta") else x.neg()

    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("d", Differs()))
    x = pybuda.Tensor.create_from_torch(torch.rand(2, 2))
    device.compile_for((x,))
    config = pybuda.VerifyConfig(verify_last=False)
    with pytest.raises(VerificationError, match="OUTPUTS: output 0"):
        device.compile_for((x,), verify_cfg=config)
    device.push_to_inputs(x)
    for run in (
        lambda: pybuda.run_inference(_verify_cfg=config),
        lambda: pybuda.initialize_pipeline(training=False, sample_inputs=(x,), _verify_cfg=config),
    ):
        with pytest.raises(VerificationError, match="OUTPUTS: output 0"):
            run()
    assert pybuda.run_inference(_verify_cfg=pybuda.VerifyConfig.disabled()).get(timeout=60)

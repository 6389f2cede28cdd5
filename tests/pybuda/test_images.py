"""Images of devices, graphs of their modules, and descriptions of their queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_loom
from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import ImageError, PyBudaError, VerificationError
from torch_loom.pybuda.enums import BackendDevice, BackendType

CHIP: Any = {"arch": BackendDevice.Wormhole_B0, "devtype": BackendType.Golden}


@pytest.mark.parametrize("devtype", [BackendType.Golden, BackendType.Silicon])
def test_an_image_runs_as_its_device_did(devtype: BackendType, tmp_path: Path) -> None:
    path = str(tmp_path / "echo.tti")
    given, module = inputs(), Echo("m")
    device = pybuda.TTDevice("tt0", arch=BackendDevice.Wormhole_B0, devtype=devtype, module=module)
    device.place_module(pybuda.PyTorchModule("then", Blend()))
    image = device.compile_to_image(img_path=path, sample_inputs=given)
    assert image.get_input_shapes() == [tuple(value.shape) for value in given]
    assert (image.get_target_shapes(), image.is_compiled_for_training) == ([], False)
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
    with pytest.raises(PyBudaError, match="images run inference"):
        device.compile_to_image(img_path=path, training=True)
    with pytest.raises(PyBudaError, match="either img or img_path"):
        pybuda.TTDevice.load_image()
    with pytest.raises(ImageError):
        pybuda.TTDeviceImage.load_from_disk(path)
    plain = nn.Linear(2, 2).to("loom").eval()
    torch_loom.compile(plain, (torch.ones(1, 2, device="loom"),)).save(path)
    with pytest.raises(ImageError, match="loom run-image"):
        pybuda.TTDevice.load_image(img_path=path)


@pytest.mark.long
def test_an_image_may_be_verified(tmp_path: Path) -> None:
    device = pybuda.TTDevice("tt0", module=Projection("m"), **CHIP)
    x = torch.rand(2, SIZE)
    arguments: Any = {"img_path": str(tmp_path / "x.tti"), "sample_inputs": (x,)}
    config = pybuda.VerifyConfig()
    right = [x @ device.modules[0].basis.value()]  # type: ignore[attr-defined]
    device.compile_to_image(**arguments, verify_cfg=config, cpueval_outputs=right)
    with pytest.raises(VerificationError, match="IMAGE: output 0"):
        device.compile_to_image(**arguments, verify_cfg=config, cpueval_outputs=[-right[0]])


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

"""``TORCH_LOOM_NUMERICS=silicon``: runs, pipelines and images have one and the same numbers."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from torch_loom import numerics, pybuda
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import BackendDevice, BackendType
from torch_loom.pybuda.execution.placing import compiled

CHIP: Any = {"arch": BackendDevice.Wormhole_B0, "devtype": BackendType.Silicon}


class Front(nn.Module):
    """A convolution, a norm and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.windows, self.norm, self.layer = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.LayerNorm(64),
            nn.Linear(64, 64),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.windows(x).relu().flatten(2))
        return y + functional.gelu(self.layer(y)) * 0.5


class Back(nn.Module):
    """Attention and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing, self.head = nn.MultiheadAttention(64, 4, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x + self.mixing(x, x, x)[0]).mean(1)).softmax(-1)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    monkeypatch.setenv("TORCH_LOOM_NUMERICS", "silicon")
    return [Front().eval(), Back().eval()]


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def placed(name: str, modules: Sequence[nn.Module], **more: Any) -> pybuda.TTDevice:
    named = [pybuda.PyTorchModule(f"{name}_{i}", module) for i, module in enumerate(modules)]
    return pybuda.TTDevice(name, module=named, **CHIP, **more)


def inferred() -> Tensor:
    result: Tensor = pybuda.run_inference(inputs=[(X,)]).get(timeout=60)[0].value()
    pybuda.pybuda_reset()
    return result


def test_runs_pipelines_and_images_agree(modules: list[nn.Module], tmp_path: Path) -> None:
    fidelity = _get_global_compiler_config().default_math_fidelity
    with torch.no_grad():
        with numerics.emulate(pybuda.DataFormat.Float16_b, fidelity=fidelity, mode="silicon"):
            wanted = modules[1](modules[0](X))
        with numerics.emulate(pybuda.DataFormat.Float16_b, fidelity=fidelity):
            fast = modules[1](modules[0](X))
    placed("whole", modules)
    assert torch.equal(inferred(), wanted)
    assert not torch.equal(fast, wanted)
    placed("one", modules[:1], chip_ids=[0])
    placed("two", modules[1:], chip_ids=[1])
    assert torch.equal(inferred(), wanted)
    path = str(tmp_path / "whole.tti")
    image = placed("whole", modules).compile_to_image(img_path=path, sample_inputs=(X,))
    assert "modules: whole_0, whole_1" in image.info()
    pybuda.pybuda_reset()
    pybuda.TTDevice.load_image(img_path=path)
    assert torch.equal(inferred(), wanted)


@pytest.mark.long
def test_the_plan_of_an_image_is_that_of_its_modules(
    modules: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ops() -> list[str]:
        device = placed("whole", modules)
        made = compiled(device, (X,), (), device.reference_stage().chosen_modules())
        pybuda.pybuda_reset()
        return [op["name"] for epoch in made.plan["epochs"] for op in epoch["ops"]]

    silicon = ops()
    monkeypatch.setenv("TORCH_LOOM_NUMERICS", "fast")
    assert silicon == ops()


def trained(device: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
    torch.manual_seed(3)
    for _ in range(2):
        device.push_to_inputs(torch.rand(4, 64))
        device.push_to_target_inputs(torch.rand(4, 32))
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.run_training(steps=2, loss_queue=losses)
    state = {name: one.value() for name, one in checkpoints.get(timeout=60)[0].items()}
    pybuda.pybuda_reset()
    return [losses.get(timeout=60)[0].value() for _ in range(2)], state


@pytest.mark.long
def test_an_image_trains_with_the_numbers_of_its_device(modules: list[nn.Module], tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32))
    device = placed("tt0", [layers], optimizer=pybuda.optimizers.SGD(learning_rate=0.1, device_params=True))
    device.place_loss_module(pybuda.op.loss.L1Loss("loss"))
    path = str(tmp_path / "step.tti")
    device.compile_to_image(
        img_path=path, training=True, sample_inputs=(torch.ones(4, 64),), sample_targets=(torch.ones(4, 32),)
    )
    wanted_losses, wanted = trained(device)
    losses, got = trained(pybuda.TTDevice.load_image(img_path=path))
    for a, b in zip([*losses, *got.values()], [*wanted_losses, *wanted.values()], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)

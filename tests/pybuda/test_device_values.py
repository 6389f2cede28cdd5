"""When a TTDevice copies the values of its modules: where something asks for them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from torch_loom import pybuda

SIZE = 256


class Row(nn.Module):
    """Two layers, reached by attributes too that are no parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.in_turn = (self.first, self.second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.in_turn:
            x = layer(x).relu()
        return x


def _placed(module: nn.Module) -> pybuda.TTDevice:
    chip = pybuda.BackendDevice.Wormhole_B0
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float16_b)
    return pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("row", module), arch=chip)


def _run(device: pybuda.TTDevice, x: torch.Tensor) -> torch.Tensor:
    device.push_to_inputs(x)
    [output] = pybuda.run_inference(_sequential=True).get(timeout=60)
    return output.value()


def _near(module: nn.Module, x: torch.Tensor, got: torch.Tensor) -> bool:
    with torch.no_grad():
        return torch.allclose(module(x), got, atol=0.05)


def test_an_inference_keeps_constants_and_no_copies_of_what_they_are_made_of() -> None:
    module, x = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE)), torch.rand(2, SIZE)
    before = torch.loom.memory_allocated()
    device = _placed(module)
    assert _near(module, x, _run(device, x))
    held = torch.loom.memory_allocated() - before
    own = sum(parameter.nbytes for parameter in module.parameters())
    assert own <= held < 1.5 * own
    assert not device.make_stage().has_values


@pytest.mark.parametrize("kind", [Row, nn.Transformer, nn.Identity])
def test_modules_stay_as_they_are(kind: type[nn.Module]) -> None:
    small = {"d_model": 16, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
    module = kind(**small) if kind is nn.Transformer else kind()
    before = {name: (id(one), one.device.type) for name, one in module.named_parameters()}
    modes = [one.training for one in module.modules()]
    device, x = _placed(module), torch.rand(1, 4, 16 if kind is nn.Transformer else SIZE)
    for _ in range(3):
        device.push_to_inputs((x, x) if kind is nn.Transformer else x)
        pybuda.run_inference(_sequential=True).get(timeout=60)
    assert before == {name: (id(one), one.device.type) for name, one in module.named_parameters()}
    assert modes == [one.training for one in module.modules()]


@pytest.mark.parametrize("kind", [Row, lambda: nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU())])
def test_what_changes_on_the_device_is_seen_by_its_runs(kind: type[nn.Module]) -> None:
    module, x = kind(), torch.rand(1, SIZE)
    device = _placed(module)
    first = _run(device, x)
    [values] = pybuda.get_parameter_checkpoint(device)
    assert {name: one.value().device.type for name, one in values.items()} == dict.fromkeys(values, "cpu")
    assert torch.equal(_run(device, x), first)
    changed = {name: pybuda.Tensor.create_from_torch(one.value() * 2) for name, one in values.items()}
    pybuda.update_device_parameters(device, [changed])
    expected = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter.mul_(2)
    assert _near(expected, x, _run(device, x))
    assert _near(module, x, first)


def test_training_follows_inference() -> None:
    module = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU())
    x, wanted = torch.rand(4, SIZE), torch.rand(4, SIZE)
    device = _placed(module)
    untrained = _run(device, x)
    assert not device.make_stage().has_values
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    device.optimizer = pybuda.optimizers.SGD(learning_rate=1.0, device_params=True)
    for _ in range(3):
        device.push_to_inputs(x)
        device.push_to_target_inputs(wanted)
        pybuda.run_training(_sequential=True)
    trained = _run(device, x)
    assert (trained - wanted).square().mean() < (untrained - wanted).square().mean()


def test_scripted_parts_are_copied_at_once() -> None:
    module, x = torch.jit.script(nn.Linear(SIZE, SIZE)), torch.rand(1, SIZE)
    device = _placed(module)
    assert _near(module, x, _run(device, x))

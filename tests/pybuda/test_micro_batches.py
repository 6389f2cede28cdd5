"""A micro-batch of several samples gives what each sample gives alone, as PyBuda compiles one sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from torch_loom import pybuda
from torch_loom.pybuda import op
from torch_loom.pybuda.verify import VerifyConfig, verify_module
from torch_loom.pybuda.verify.config import TestKind

HEADS, SIZE = 4, 32


class Attention(pybuda.PyBudaModule):
    """Heads are cut into z, which is 1 for each sample."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        torch.manual_seed(0)
        self.out = pybuda.Parameter(torch.randn(1, SIZE, SIZE))

    def forward(self, x: Any) -> Any:
        heads = op.HSlice("heads", x, HEADS)
        scores = op.Matmul("scores", heads, op.Transpose("turned", heads, -2, -1))
        mixed = op.Matmul("mixed", op.nn.Softmax("softmax", scores, dim=-1), heads)
        return op.Matmul("y", op.HStack("stacked", mixed), self.out)


class Flat(pybuda.PyBudaModule):
    def forward(self, x: Any, shift: Any) -> Any:
        return op.Add("shifted", op.Reshape("flat", x, (1, 1, 8, 8)), shift)


class Scaled(pybuda.PyBudaModule):
    """Has constants of an op, and of a tensor that forward makes."""

    def forward(self, x: Any) -> Any:
        doubled = op.Multiply("doubled", x, op.Buffer("b", op.Constant("two", constant=2.0)))
        ones = pybuda.Tensor.create_from_torch(torch.full((1, SIZE), 3.0), constant=True)
        return op.Add("y", doubled, ones)


def _run(module: pybuda.Module, *given: torch.Tensor, **device: Any) -> torch.Tensor:
    tt0 = pybuda.TTDevice("tt0", module=module, **device)
    tt0.push_to_inputs(*given)
    value: torch.Tensor = pybuda.run_inference(_sequential=True).get(timeout=60)[0].value()
    pybuda.pybuda_reset()
    return value


@pytest.mark.long
@pytest.mark.parametrize("devtype", [pybuda.BackendType.Golden, pybuda.BackendType.Silicon])
def test_samples_of_an_attention_are_apart(devtype: pybuda.BackendType) -> None:
    device = {"devtype": devtype, "arch": pybuda.BackendDevice.Wormhole_B0}
    x = torch.randn(3, 64, SIZE)
    alone = torch.cat([_run(Attention("a"), one[None], **device) for one in x])
    together = _run(Attention("a"), x, **device)
    assert torch.allclose(together, alone, atol=1e-5)


def test_a_module_may_reshape_its_sample() -> None:
    x, shift = torch.rand(4, 16, 2, 2), torch.rand(1, 1, 8, 8)
    assert torch.equal(_run(Flat("f"), x, shift), x.reshape(4, 1, 8, 8) + shift)


def test_constants_are_where_the_module_runs() -> None:
    x = torch.rand(2, 4, SIZE)
    assert torch.equal(_run(Scaled("s"), x), 2 * x + 3)


@pytest.mark.long
def test_samples_have_one_dropout(tmp_path: Path) -> None:
    class Dropped(pybuda.PyBudaModule):
        def forward(self, x: Any) -> Any:
            return op.Dropout("dropped", x, p=0.25, training=True, seed=3)

    chip: dict[str, Any] = {"arch": pybuda.BackendDevice.Wormhole_B0, "devtype": pybuda.BackendType.Golden}
    x = torch.ones(3, 16, SIZE)
    got = _run(Dropped("d"), x, **chip)
    assert torch.equal(got, got[:1].expand_as(got))
    assert 0.1 < float((got == 0).float().mean()) < 0.4
    verify_module(Dropped("d"), [(1, 16, SIZE)], VerifyConfig(**chip))
    tt0 = pybuda.TTDevice("tt0", module=Dropped("d"), **chip)
    tt0.compile_to_image(img_path=str(tmp_path / "d.tti"), sample_inputs=(x,))
    pybuda.pybuda_reset()
    image = pybuda.TTDevice.load_image(img_path=str(tmp_path / "d.tti"))
    image.push_to_inputs(x)
    assert torch.equal(pybuda.run_inference(_sequential=True).get(timeout=60)[0].value(), got)


@pytest.mark.long
def test_images_and_tapped_values_have_all_samples(tmp_path: Path) -> None:
    x = torch.rand(3, 64, SIZE)
    module = Attention("a")
    expected = _run(Attention("a"), x, devtype=pybuda.BackendType.Golden)
    tapped = module.insert_tapout_queue_for_op("mixed", 0)
    tt0 = pybuda.TTDevice(
        "tt0", module=module, arch=pybuda.BackendDevice.Wormhole_B0, devtype=pybuda.BackendType.Golden
    )
    tt0.push_to_inputs(x)
    pybuda.run_inference(_sequential=True).get(timeout=60)
    assert tt0.get_tapout_values(tapped)[0].shape == (3 * HEADS, 64, SIZE // HEADS)
    tt0.compile_to_image(img_path=str(tmp_path / "a.tti"), sample_inputs=(x,))
    pybuda.pybuda_reset()
    image = pybuda.TTDevice.load_image(img_path=str(tmp_path / "a.tti"))
    image.push_to_inputs(x)
    assert torch.allclose(
        pybuda.run_inference(_sequential=True).get(timeout=60)[0].value(), expected, atol=1e-5
    )


@pytest.mark.long
def test_training_adds_the_gradients_of_samples() -> None:
    x = torch.randn(3, 64, SIZE)
    module = Attention("a")
    config = VerifyConfig(test_kind=TestKind.TRAINING, devtype=pybuda.BackendType.Golden, pcc=0.999)
    checked = verify_module(module, [], config, inputs=[[x]], loss_module=op.loss.L1Loss("l1"))
    assert {one.stage for one in checked} >= {"OUTPUTS", "GRADIENTS", "FULL"}
    runner: Any = module.torch_module()
    gradients = []
    for group in ([x], [one[None] for one in x]):
        runner.zero_grad()
        for one in group:
            runner(one)[0].sum().backward()
        gradients.append(runner.values[0].grad.clone())
    assert torch.allclose(*gradients, atol=1e-3)

"""Optimizers in every implementation, loss scaling and autocast."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

PLAIN = (
    "Adam",
    "AdamW",
    "SGD",
    "Adagrad",
    "RMSprop",
    "NAdam",
    "RAdam",
    "Adadelta",
    "Adamax",
    "ASGD",
    "Rprop",
)
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
CAPTURABLE = tuple(name for name in PLAIN if name not in ("SGD", "Adagrad"))
CASES = [(name, kind) for name in PLAIN for kind in ("foreach", "for loop")]
CASES += [(name, "fused") for name in FUSED] + [(name, "capturable") for name in CAPTURABLE]
OPTIONS = {
    "foreach": {"foreach": True},
    "for loop": {"foreach": False},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
}


def train(device: str, name: str, **options: bool) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)
    extra = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(module.parameters(), lr=0.05, **extra, **options)
    x = torch.linspace(-1, 1, 12).view(4, 3).to(device)
    for _ in range(3):
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()
    return module


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_three_steps_are_the_cpus(name: str, kind: str) -> None:
    expected = train("cpu", name, foreach=False)
    for ours, theirs in zip(
        train("loom", name, **OPTIONS[kind]).parameters(), expected.parameters(), strict=True
    ):
        assert ours.is_loom  # type: ignore[attr-defined]
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [3, 40])
def test_fused_sgd_changes_all_numbers_of_16_bits(size: int, dtype: torch.dtype) -> None:
    """The CPU's own kernel changes those alone that fill no vector."""
    parameter = torch.ones(size, dtype=dtype, device="loom", requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.25, momentum=0.5, fused=True)
    for expected in (0.75, 0.375):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        assert parameter.unique().tolist() == [expected]


def test_clipping_takes_gradients_of_both_devices() -> None:
    parameters = [torch.ones(2, device=f"loom:{i}", requires_grad=True) for i in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 3.0)
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    assert norm.item() == pytest.approx(6.0)
    assert [p.grad.sum().item() for p in parameters if p.grad is not None] == pytest.approx([1, 1])


def test_grad_scaler_skips_the_step_that_overflowed() -> None:
    weight = torch.ones(2, device="loom", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("loom", init_scale=1024.0, growth_interval=2)
    for factor, scale, value in (
        (1.0, 1024.0, 0.5),
        (float("inf"), 512.0, 0.5),
        (1.0, 512.0, 0.0),
        (1.0, 1024.0, -0.5),
    ):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert weight.tolist() == [value, value]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_lists(dtype: torch.dtype) -> None:
    x, low = torch.rand(4, 4, device="loom"), torch.rand(4, 4, dtype=dtype, device="loom")
    image, kernel = torch.rand(1, 1, 4, 4, device="loom"), torch.rand(1, 1, 3, 3, device="loom")
    with torch.autocast("loom", dtype=dtype):
        assert torch.is_autocast_enabled("loom")
        lowered = (x @ x, torch.mm(x, x), F.linear(x, x), F.conv2d(image, kernel), torch.addmm(x, x, x))
        raised = (
            low.exp(),
            low.softmax(0),
            low.log(),
            F.mse_loss(low, low),
            low.sum(),
            low.norm(),
            low.pow(2),
        )
        assert {result.dtype for result in lowered} == {dtype}
        assert {result.dtype for result in raised} == {torch.float32}
        assert torch.cat([x, low]).dtype == torch.float32  # promotes to the widest
        assert (low + low).dtype == dtype  # in no list
        with torch.autocast("loom", enabled=False):
            assert (x @ x).dtype == torch.float32
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            F.binary_cross_entropy(x, x)
    assert (x @ x).dtype == torch.float32
    torch.testing.assert_close(lowered[0].cpu(), x.to(dtype).cpu() @ x.to(dtype).cpu())


def test_autocast_of_a_module_trains_its_float32_weights() -> None:
    module, x = nn.Linear(4, 2, device="loom"), torch.rand(3, 4, device="loom")
    with torch.autocast("loom", dtype=torch.bfloat16):
        output = module(x)
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    assert module.weight.grad is not None
    assert module.weight.grad.dtype == torch.float32
    torch.testing.assert_close(module.weight.grad, x.sum(0).expand(2, 4), rtol=2e-2, atol=2e-2)


def test_autocast_of_the_cpu_does_not_reach_the_device() -> None:
    x = torch.rand(2, 2, device="loom")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32


def test_an_optimizer_without_the_option_capturable_steps() -> None:
    weight = torch.ones(3, 2, device="loom", requires_grad=True)
    optimizer = torch.optim.Adafactor([weight], lr=0.1)
    weight.pow(2).sum().backward()
    optimizer.step()
    assert (weight < 1).all()

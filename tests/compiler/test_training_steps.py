"""Training steps: forward, backward and optimizer in one executable, and what AMP levels do to them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import torch_loom
from torch_loom.errors import CompilerOptionError
from torch_loom.pybuda import optimizers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Maker = Callable[[list[Any]], torch.optim.Optimizer]


pytestmark = pytest.mark.usefixtures("plain_configuration")


def net(norm: bool = False) -> nn.Module:
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(16) if norm else nn.LayerNorm(16)
    return nn.Sequential(nn.Linear(8, 16), middle, nn.GELU(), nn.Linear(16, 4)).to("loom")


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return torch.randn(5, 8, device="loom"), torch.randint(0, 4, (5,), device="loom")


def compiled(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> torch_loom.Executable:
    return torch_loom.compile(
        model,
        batch(0),
        optimizer=optimizer,
        loss=functional.cross_entropy,
        chip="wormhole_b0",
        **options,
    )


def eager_step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> torch.Tensor:
    x, y = batch(seed)
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def sgd(parameters: list[Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)


MAKERS: dict[str, Maker] = {
    "SGD": sgd,
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, capturable=True, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, capturable=True, foreach=False),
    "LAMB": lambda p: optimizers.LAMB(1e-2, correction=True, device_params=True).get_pytorch_optimizer(p),
    "LARS": lambda p: optimizers.LARS(1e-1, device_params=True).get_pytorch_optimizer(p),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_those_of_eager_mode(name: str) -> None:
    ours, theirs = net(), net()
    run = compiled(ours, MAKERS[name](list(ours.parameters())))
    optimizer = MAKERS[name](list(theirs.parameters()))
    for seed in range(3):
        torch.testing.assert_close(run(*batch(seed)), eager_step(theirs, optimizer, seed))
    for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-6)
    roles = {op["role"] for epoch in run.plan["epochs"] for op in epoch["ops"]}
    assert roles == {"forward", "backward", "optimizer"}


@pytest.mark.long
def test_buffers_bits_and_a_state_that_has_begun() -> None:
    ours, theirs = net(norm=True), net(norm=True)
    mine, other = sgd(list(ours.parameters())), sgd(list(theirs.parameters()))
    for model, optimizer in ((ours, mine), (theirs, other)):
        eager_step(model, optimizer, 7)
    run = compiled(ours, mine)
    for seed in range(2):
        assert torch.equal(run(*batch(seed)), eager_step(theirs, other, seed))
    for one, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[one]), one


@pytest.mark.long
def test_an_image_goes_on_training_where_it_was_saved(tmp_path: Path) -> None:
    ours, theirs = net(), net()
    run, optimizer = compiled(ours, sgd(list(ours.parameters()))), sgd(list(theirs.parameters()))
    run(*batch(0))
    run.save(tmp_path / "step.loom")
    loaded = torch_loom.Executable.load(tmp_path / "step.loom")
    eager_step(theirs, optimizer, 0)
    assert torch.equal(loaded(*batch(1)), eager_step(theirs, optimizer, 1))
    assert torch.equal(loaded(*batch(2)), eager_step(theirs, optimizer, 2))


def formats(run: torch_loom.Executable, *roles: str) -> set[tuple[str, str]]:
    ops = [op for epoch in run.plan["epochs"] for op in epoch["ops"] if op["role"] in roles]
    return {(op["format"], op["fidelity"]) for op in ops if op["format"]}


@pytest.mark.long
def test_amp_levels_decide_the_optimizers_formats() -> None:
    after, found = {}, {}
    for level in (0, 1, 2):
        model = net()
        run = compiled(
            model,
            torch.optim.SGD(model.parameters(), lr=1e-3),
            amp_level=level,
            default_df_override="Bfp8_b",
            accumulate_df="Float16_b",
        )
        run(*batch(0))
        after[level] = copy.deepcopy(model.state_dict())
        found[level] = formats(run, "optimizer"), formats(run, "forward", "backward")
    assert found[0][0] == {("Bfp8_b", "HiFi3")}
    assert found[1][0] == found[2][0] == {("Float32", "HiFi4")}
    assert found[0][1] == found[1][1], "level 1 changes the optimizer alone"
    assert ("Bfp8_b", "HiFi3") in found[1][1]
    # The reference's Mixed_B.
    assert ("Bfp8_b", "HiFi2") in found[2][1]
    assert ("Float16_b", "") in found[2][1]
    # A step of 1e-3 is lost in parameters of eight bits, and kept in those of 32.
    before, expected = net().state_dict(), net()
    eager_step(expected, torch.optim.SGD(expected.parameters(), lr=1e-3), 0)
    moved = expected.state_dict()["0.weight"] - before["0.weight"]
    errors = [(after[level]["0.weight"] - before["0.weight"] - moved).norm() for level in (0, 1)]
    assert errors[1] < moved.norm() / 2 < errors[0]


def test_what_is_refused() -> None:
    model, other = net(), net()
    x, y = batch(0)
    bad: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
        ("not the module's", {"optimizer": sgd(list(other.parameters()))}, (x, y)),
        ("one element", {"optimizer": sgd(list(model.parameters())), "loss": None}, (x,)),
        ("give the optimizer", {"optimizer": None}, (x, y)),
    ]
    damped = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    bad.append(("Take one step in eager mode", {"optimizer": damped}, (x, y)))
    bad.append(("Take one step", {"optimizer": torch.optim.Rprop(model.parameters())}, (x, y)))
    for text, given, inputs in bad:
        with pytest.raises(CompilerOptionError, match=text):
            torch_loom.compile(
                model, inputs, **{"loss": functional.cross_entropy, "chip": "wormhole_b0", **given}
            )


def test_a_module_that_is_not_on_the_device_is_warned_of() -> None:
    model = net().cpu()
    with pytest.warns(
        UserWarning, match=r"0\.weight is on cpu: a copy on loom:0 changes .* module\.to\('loom:0'\)"
    ):
        run = compiled(model, torch.optim.SGD(model.parameters(), 0.1))
    before = model[0].weight.clone()
    run(*batch(0))
    assert torch.equal(model[0].weight, before)


@pytest.mark.long
@pytest.mark.parametrize("norm", [False, True])
def test_adamw_has_the_bits_of_eager_with_the_same_options(norm: bool) -> None:
    ours, theirs = net(norm), net(norm)
    run = compiled(ours, torch.optim.AdamW(ours.parameters(), 0.1))
    optimizer = torch.optim.AdamW(theirs.parameters(), 0.1, capturable=True, foreach=False)
    for seed in range(3):
        assert torch.equal(run(*batch(seed)), eager_step(theirs, optimizer, seed))
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Bfp8_b", r"Bfp8_b: addcdiv.*share exponents.*amp_level=1"),
        ("Float16_b", r"Float16_b: pow_\d \(aten::pow.Scalar\) has the rate 0.999.*amp_level=1"),
    ],
)
def test_an_optimizer_that_divides_by_zero_in_its_format_is_told(
    name: str, message: str, recwarn: pytest.WarningsRecorder
) -> None:
    def adam(**options: Any) -> torch_loom.Executable:
        return compiled(model, torch.optim.AdamW(model.parameters()), default_df_override=name, **options)

    model = net()
    with pytest.warns(UserWarning, match=message):
        adam()
    recwarn.clear()
    run = adam(amp_level=1)
    assert not [one for one in recwarn if "amp_level" in str(one.message)]
    assert all(run(*batch(seed)).isfinite() for seed in range(4))

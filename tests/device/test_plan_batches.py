"""How large a batch fits: what a plan advises, and whether that is so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from torch_loom.device.plan import DryRunPlan, batches
from torch_loom.device.plan.casts import Cast
from torch_loom.errors import DryRunError
from torch_loom.tools import plan_text

MIB = 1 << 20


def planned(program: Callable[[int], object], batch: int, memory: str = "2GiB") -> DryRunPlan | None:
    """Return the plan of a program with a batch; None if it does not fit."""
    try:
        with torch.loom.dry_run(chip="a100", devices=1, memory=memory) as plan:
            program(batch)
    except torch.OutOfMemoryError:
        return None
    return plan


def inferred(batch: int) -> None:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to("loom").half().eval()
    with torch.inference_mode():
        for _ in range(3):
            y = model(torch.empty(batch, 128, 256, device="loom", dtype=torch.half))
            assert y.shape[0] == batch


def trained(batch: int) -> None:
    wide = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.GELU())]
    model = nn.Sequential(*wide, nn.Linear(1024, 1024)).to("loom")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(3):
        with torch.autocast("loom", torch.bfloat16):
            loss = model(torch.empty(batch, 1024, device="loom")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "batch"), [(inferred, 8), (inferred, 200), (inferred, 500), (trained, 1024), (trained, 8192)]
)
def test_what_is_advised_fits_and_not_much_more_does(program: Callable[[int], object], batch: int) -> None:
    plan = planned(program, batch)
    assert plan is not None
    factor = plan.batch_factor()
    assert factor is not None
    assert factor > 1
    assert planned(program, int(batch * factor)) is not None
    assert planned(program, int(batch * factor * 1.2)) is None


@pytest.mark.long
def test_the_advice_is_about_the_steps_where_the_peak_is_in_the_setup() -> None:
    def program(batch: int) -> None:
        model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).to("loom").half()
        with torch.inference_mode():
            for _ in range(2):
                model(torch.empty(batch, 2048, device="loom", dtype=torch.half))

    plan = planned(program, 16)
    assert plan is not None
    parameters = 8 * (2048 * 2048 + 2048)
    peak, after = plan.memory_by_category(), plan.step_memory_by_category()
    assert after is not None
    # Of the layer that is cast both copies are there.
    assert peak["parameters"] >= 4 * parameters
    assert peak["activations"] <= 9 * MIB
    assert after["parameters"] == pytest.approx(2 * parameters, rel=0.01)
    assert after["activations"] < MIB
    factor = plan.batch_factor()
    assert factor is not None
    assert factor >= 1000
    ordinary = planned(inferred, 64)
    assert ordinary is not None
    assert ordinary.step_memory_by_category() is None


def test_modules_that_are_never_called_have_parameters() -> None:
    # MultiheadAttention takes the weight of its `out_proj`, and does not call it.
    def program(batch: int) -> None:
        model = nn.MultiheadAttention(512, 8, batch_first=True).to("loom").eval()
        x = torch.empty(batch, 16, 512, device="loom")
        with torch.inference_mode():
            model(x, x, x)

    plan = planned(program, 1)
    assert plan is not None
    assert plan.memory_by_category()["parameters"] >= 4 * 4 * 512 * 512


def test_a_program_without_activations_has_no_batch() -> None:
    def program(batch: int) -> None:
        nn.Linear(64, 64).to("loom")(torch.empty(0, 64, device="loom"))

    plan = planned(program, 1)
    assert plan is not None
    assert plan.batch_factor() is None


def test_it_is_asked_for_after_dry_runs() -> None:
    with torch.loom.dry_run(chip="a100", devices=1) as plan:
        torch.ones(8, device="loom")
        with pytest.raises(DryRunError, match=r"plan.batch_factor\(\)"):
            plan.batch_factor()
    assert plan.batch_factor() == 1000


def test_what_grows() -> None:
    def taken(address: int, size: int, is_workspace: int = 0) -> batches.Event:
        return (0, address, size, 0, is_workspace)

    events = [
        taken(1, 512),  # 0, a parameter
        taken(2, 512),  # 1, given back in the setup
        taken(2, -512),
        taken(3, 512),  # 3, the batch
        taken(4, 512, 1),  # 4, a workspace that stays
        taken(5, 512, 1),  # 5, a workspace of a call
        taken(5, -512),
        taken(6, 256),  # 7, a copy of the parameter
        taken(7, 256),  # 8, a copy of the batch
        taken(8, 512),  # 9, what an optimizer takes for its step
        taken(8, -512),
        taken(9, 512),  # 11
    ]
    casts = [Cast(8, 1, 6, 512), Cast(9, 3, 7, 512)]
    assert batches.growing(events, {0: "parameters"}, 4, [(9, 11)], casts) == {3, 5, 8, 11}


def test_all_factors_have_two_digits() -> None:
    assert len(set(batches.FACTORS)) == len(batches.FACTORS)
    assert list(batches.FACTORS) == sorted(batches.FACTORS)
    for factor in batches.FACTORS[:-1]:
        assert float(plan_text.times_text(factor)) == factor
    assert batches.FACTORS[-1] == plan_text.MAX_TIMES


@pytest.mark.long
def test_forwards_are_timed_where_nothing_is_trained() -> None:
    plan = planned(inferred, 8)
    assert plan is not None
    assert len(plan.forward_seconds) == 3
    assert plan.setup_seconds + sum(plan.forward_seconds) == pytest.approx(plan.seconds)
    assert not plan.is_training
    plan = planned(trained, 1024)
    assert plan is not None
    assert plan.forward_seconds == ()
    assert plan.is_training

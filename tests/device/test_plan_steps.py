"""Steps of a plan: those of optimizers, and of programs that write to their parameters by themselves."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom.device.plan import DryRunPlan

RATE = 0.1
NUM_STEPS = 3


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*reads a value of a device")
        yield


def made() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to("loom")


def loss_of(model: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return model(torch.randn(16, 64, device="loom")).square().mean()


def planned(program: Callable[[], object]) -> DryRunPlan:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        program()
    return plan


def data_add(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.data.add_(p.grad, alpha=-RATE)


def data_subtract(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.data -= RATE * p.grad


def data_replaced(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.data = p.data - RATE * p.grad


@torch.no_grad()
def subtract(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p -= RATE * p.grad


@torch.no_grad()
def method(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.sub_(RATE * p.grad)


@torch.no_grad()
def copied(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.copy_(p - RATE * p.grad)


@torch.no_grad()
def from_host(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.copy_(p.cpu() - RATE * p.grad.cpu())


@torch.no_grad()
def by_index(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p[:] = p - RATE * p.grad


@torch.no_grad()
def out(model: nn.Module) -> None:
    for p in model.parameters():
        assert p.grad is not None
        torch.sub(p, p.grad, alpha=RATE, out=p)


@torch.no_grad()
def foreach(model: nn.Module) -> None:
    parameters = list(model.parameters())
    torch._foreach_add_(parameters, [p.grad for p in parameters if p.grad is not None], alpha=-RATE)


WAYS = [
    *(data_add, data_subtract, data_replaced, subtract, method, copied, from_host, by_index, out, foreach)
]


@pytest.mark.long
@pytest.mark.parametrize("update", WAYS)
def test_an_update_by_hand_is_a_step_however_it_is_written(update: Callable[[nn.Module], None]) -> None:
    def program() -> None:
        model = made()
        for _ in range(NUM_STEPS):
            model.zero_grad()
            for _ in range(2):  # gradients are accumulated
                loss_of(model).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            update(model)

    plan = planned(program)
    assert len(plan.step_seconds) == NUM_STEPS
    assert min(plan.step_seconds) == pytest.approx(max(plan.step_seconds), rel=0.1)
    parameters = 4 * (64 * 64 + 64 + 64 * 8 + 8)
    found = plan.memory_by_category()
    assert parameters <= found["gradients"] <= parameters + 4 * 512
    assert found["optimizer state"] == 0


@pytest.mark.long
def test_a_step_by_hand_takes_what_an_optimizers_takes() -> None:
    def by_hand() -> None:
        model = made()
        for _ in range(NUM_STEPS):
            model.zero_grad()
            loss_of(model).backward()
            foreach(model)

    def by_optimizer() -> None:
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, foreach=True)
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()

    assert planned(by_hand).step_seconds == pytest.approx(planned(by_optimizer).step_seconds)


def test_gradients_that_are_returned() -> None:
    def program() -> None:
        model = made()
        parameters = list(model.parameters())
        for _ in range(NUM_STEPS):
            gradients = torch.autograd.grad(loss_of(model), parameters)
            with torch.no_grad():
                for p, gradient in zip(parameters, gradients, strict=True):
                    p -= RATE * gradient

    assert len(planned(program).step_seconds) == NUM_STEPS


def test_a_program_without_modules() -> None:
    def program() -> None:
        weight = torch.randn(64, 8, device="loom", requires_grad=True)
        bias = torch.zeros(8, device="loom", requires_grad=True)
        for _ in range(NUM_STEPS):
            torch.autograd.backward(loss_of(lambda x: x @ weight + bias))
            with torch.no_grad():
                for tensor in (weight, bias):
                    assert tensor.grad is not None
                    tensor -= RATE * tensor.grad
                    tensor.grad = None

    plan = planned(program)
    assert len(plan.step_seconds) == NUM_STEPS
    assert plan.memory_by_category()["parameters"] == 64 * 8 * 4 + 512


def test_parameters_that_share_memory() -> None:
    def program() -> None:
        model = made()
        parameters = list(model.parameters())
        flat = torch.cat([p.detach().flatten() for p in parameters])
        for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            p.data = part.view_as(p)
        for _ in range(NUM_STEPS):
            model.zero_grad()
            loss_of(model).backward()
            flat.sub_(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]), alpha=RATE)

    assert len(planned(program).step_seconds) == NUM_STEPS


@pytest.mark.parametrize("has_optimizer", [True, False])
def test_updates_within_the_backward_pass_are_one_step(has_optimizer: bool) -> None:
    def program() -> None:
        model = made()
        optimizers: dict[torch.Tensor, torch.optim.Optimizer] = {}
        if has_optimizer:
            optimizers = {p: torch.optim.SGD([p], lr=RATE) for p in model.parameters()}

        def update(p: torch.Tensor) -> None:
            if optimizers:
                optimizers[p].step()
            else:
                assert p.grad is not None
                p.data.add_(p.grad, alpha=-RATE)
            p.grad = None

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)
        for _ in range(NUM_STEPS):
            loss_of(model).backward()

    assert len(planned(program).step_seconds) == NUM_STEPS


def nothing(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(0.5)


def average(model: Any) -> None:
    if not hasattr(model, "average"):
        object.__setattr__(model, "average", copy.deepcopy(model))
    for own, p in zip(model.average.parameters(), model.parameters(), strict=True):
        own.data.mul_(0.9).add_(p.data, alpha=0.1)


def evaluated(model: nn.Module) -> None:
    with torch.no_grad():
        loss_of(model)
    model.load_state_dict({name: each.clone() for name, each in model.state_dict().items()})


@pytest.mark.parametrize("other", [nothing, average, evaluated])
def test_what_is_no_update(other: Callable[[nn.Module], None]) -> None:
    def program() -> None:
        model = made()
        for p in model.parameters():
            nn.init.normal_(p)
        for _ in range(NUM_STEPS):
            loss_of(model).backward()
            other(model)

    assert planned(program).step_seconds == ()


def test_an_average_belongs_to_no_other_step() -> None:
    def program() -> None:
        model = made()
        for _ in range(NUM_STEPS):
            model.zero_grad()
            loss_of(model).backward()
            data_add(model)
            average(model)
            for p in model.parameters():
                p.data.clamp_(-1, 1)

    assert len(planned(program).step_seconds) == NUM_STEPS


def test_with_an_optimizer_other_writes_are_no_steps() -> None:
    def program() -> None:
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            # As sharpness-aware minimisation does: up the hill, and back before the step.
            loss_of(model).backward()
            data_subtract(model)
            loss_of(model).backward()
            data_add(model)
            optimizer.step()
            for p in model.parameters():
                p.data.clamp_(-0.01, 0.01)

    assert len(planned(program).step_seconds) == NUM_STEPS


def test_inputs_that_are_attacked_are_no_parameters() -> None:
    def program() -> None:
        model = made()
        for _ in range(NUM_STEPS):
            delta = torch.zeros(16, 64, device="loom", requires_grad=True)
            for _ in range(2):
                model(torch.randn(16, 64, device="loom") + delta).square().mean().backward()
                assert delta.grad is not None
                delta.data.add_(delta.grad.sign(), alpha=0.01)
            model.zero_grad()
            loss_of(model).backward()
            data_add(model)

    assert len(planned(program).step_seconds) == NUM_STEPS


def test_programs_of_two_parts_step_twice() -> None:
    def program() -> None:
        first, second = made(), nn.Linear(8, 64).to("loom")
        for _ in range(NUM_STEPS):
            loss_of(lambda x: second(first(x).detach())).backward()
            data_add(second)
            loss_of(lambda x: second(first(x))).backward()
            data_add(first)

    assert len(planned(program).step_seconds) == 2 * NUM_STEPS


def test_the_model_is_what_wrappers_have_inside() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(64, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.module(x)

    assert planned(lambda: loss_of(nn.DataParallel(Net().to("loom")))).model == "Net"
    assert planned(lambda: torch.ones(3, device="loom")).model == ""


@pytest.mark.slow
def test_compiled_updates() -> None:
    def program() -> None:
        model = made()
        compiled = torch.compile(model)

        @torch.compile
        def update(parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
            for p, gradient in zip(parameters, gradients, strict=True):
                p.sub_(RATE * gradient)

        for _ in range(NUM_STEPS):
            model.zero_grad()
            loss_of(compiled).backward()
            with torch.no_grad():
                parameters = list(model.parameters())
                update(parameters, [p.grad for p in parameters if p.grad is not None])

    assert len(planned(program).step_seconds) == NUM_STEPS

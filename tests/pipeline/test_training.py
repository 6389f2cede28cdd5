"""Training over several stages gives the losses and parameters of plain PyTorch, bit for bit."""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torch_loom.errors import PipelineError
from torch_loom.pipeline import Pipeline, Stage
from torch_loom.pipeline.schedule import ScheduleName

NUM_STEPS, NUM_ACCUMULATED, NUM_MICROBATCHES = 3, 2, 3

Optimizer = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def layers() -> list[nn.Module]:
    torch.manual_seed(7)
    return [
        nn.Linear(6, 16),
        nn.Sequential(nn.GELU(), nn.Linear(16, 16)),
        nn.Sequential(nn.ReLU(inplace=True), nn.LayerNorm(16)),
        nn.Linear(16, 4),
    ]


def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(8)
    number = NUM_STEPS * NUM_ACCUMULATED * NUM_MICROBATCHES
    return [(torch.randn(5, 6), torch.randint(0, 4, (5,))) for _ in range(number)]


def plain(make: Optimizer) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    model = nn.Sequential(*layers())
    optimizer = make(model.parameters())
    loss_of = nn.CrossEntropyLoss()
    losses = []
    for number, (x, target) in enumerate(data()):
        if number % (NUM_ACCUMULATED * NUM_MICROBATCHES) == 0:
            optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        losses.append(loss.detach())
        if (number + 1) % (NUM_ACCUMULATED * NUM_MICROBATCHES) == 0:
            optimizer.step()
    return losses, {name: value.detach() for name, value in model.named_parameters()}


def stages(num_stages: int, devices: list[str], make: Optimizer | None) -> list[Stage]:
    parts, per_stage = layers(), 4 // num_stages
    made = []
    for place in range(num_stages):
        first = place * per_stage
        modules = {f"{number}": parts[number] for number in range(first, first + per_stage)}
        model = nn.Sequential()
        for name, module in modules.items():
            model.add_module(name, module)
        loss = nn.CrossEntropyLoss() if place == num_stages - 1 else None
        made.append(Stage(f"s{place}", model, devices[place % len(devices)], loss=loss, optimizer=make))
    return made


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param(["cpu"], marks=pytest.mark.slow),
        ["loom:0", "loom:1"],
        pytest.param(["loom:0", "cpu"], marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("num_stages", [1, 2, 4])
@pytest.mark.parametrize(("name", "order"), [("sgd", "1f1b"), ("adam", "all_forward"), ("adamw", "1f1b")])
def test_losses_and_parameters_are_those_of_plain_pytorch(
    name: str, order: ScheduleName, num_stages: int, devices: list[str], pipelines: list[Pipeline]
) -> None:
    expected, parameters = plain(OPTIMIZERS[name])
    losses: queue.Queue[list[torch.Tensor]] = queue.Queue()
    checkpoints: queue.Queue[list[dict[str, torch.Tensor]]] = queue.Queue()
    pipeline = Pipeline(stages(num_stages, devices, OPTIMIZERS[name]), stage_queue_entries=1)
    pipelines.append(pipeline)
    pipeline.start(training=True, losses=losses, checkpoints=checkpoints)
    pipeline.train(
        steps=NUM_STEPS,
        accumulation_steps=NUM_ACCUMULATED,
        microbatches=NUM_MICROBATCHES,
        schedule=order,
    )
    for x, target in data():
        pipeline.push(x)
        pipeline.push_target(target)
    got = [losses.get(timeout=60)[0] for _ in expected]
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    final = {name: value for part in checkpoints.get(timeout=60) for name, value in part.items()}
    assert final.keys() == parameters.keys()
    torch.testing.assert_close(final, parameters, rtol=0, atol=0)
    assert checkpoints.empty()


def test_by_hand_is_the_same_as_train(pipelines: list[Pipeline]) -> None:
    expected, parameters = plain(OPTIMIZERS["adam"])
    losses: queue.Queue[list[torch.Tensor]] = queue.Queue()
    pipeline = Pipeline(stages(2, ["loom:0", "cpu"], OPTIMIZERS["adam"]))
    pipelines.append(pipeline)
    pipeline.start(training=True, losses=losses)
    feed = iter(data())
    for inline in (False, True, False):
        for accumulated in range(NUM_ACCUMULATED):
            for _ in range(NUM_MICROBATCHES):
                x, target = next(feed)
                pipeline.push(x)
                pipeline.push_target(target)
            pipeline.forward(NUM_MICROBATCHES, inline=inline)
            pipeline.backward(NUM_MICROBATCHES, zero_grad=accumulated == 0, inline=inline)
        pipeline.step(inline=inline)
    got = [losses.get(timeout=60)[0] for _ in expected]
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    final = {name: value for part in pipeline.checkpoint() for name, value in part.items()}
    torch.testing.assert_close(final, parameters, rtol=0, atol=0)


def test_gradients_are_summed_and_zeroed(pipelines: list[Pipeline]) -> None:
    model = nn.Linear(3, 1, bias=False)
    pipeline = Pipeline([Stage("only", model, "loom:0", loss=lambda out: out.sum())])
    pipelines.append(pipeline)
    pipeline.start(training=True)
    # A loss without targets still takes an entry of targets for each micro-batch, as documented for PyBuda.
    pipeline.stages[0].loss = lambda out, target: (out * target).sum()
    for value in (1.0, 2.0, 4.0):
        pipeline.push(torch.full((1, 3), value))
        pipeline.push_target(torch.ones(1, 1))
    pipeline.forward(3)
    pipeline.backward(2, zero_grad=True)
    assert pipeline.gradients()[0]["weight"].tolist() == [[3.0] * 3]
    pipeline.backward(1, zero_grad=True)
    assert pipeline.gradients()[0]["weight"].tolist() == [[4.0] * 3]


def test_schedulers_step_once_an_epoch(pipelines: list[Pipeline]) -> None:
    stage = Stage(
        "only",
        nn.Linear(2, 1),
        "cpu",
        loss=nn.MSELoss(),
        optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
        scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5),
    )
    checkpoints: queue.Queue[Any] = queue.Queue()
    pipeline = Pipeline([stage])
    pipelines.append(pipeline)
    pipeline.start(training=True, checkpoints=checkpoints)
    for _ in range(6):
        pipeline.push(torch.ones(1, 2))
        pipeline.push_target(torch.ones(1, 1))
    pipeline.train(epochs=2, steps=3, checkpoint_interval=2)
    pipeline.sync()
    assert stage.optimizer.param_groups[0]["lr"] == 0.25
    assert checkpoints.qsize() == 3, "after steps 2, 4 and 6, the last being the last state"
    pipeline.step_schedulers()
    pipeline.sync()
    assert stage.optimizer.param_groups[0]["lr"] == 0.125


def test_last_checkpoint_is_the_last_state(pipelines: list[Pipeline]) -> None:
    stage = Stage("only", nn.Linear(2, 1), loss=nn.MSELoss(), optimizer=OPTIMIZERS["sgd"])
    checkpoints: queue.Queue[Any] = queue.Queue()
    pipeline = Pipeline([stage])
    pipelines.append(pipeline)
    pipeline.start(training=True, checkpoints=checkpoints)
    for _ in range(3):
        pipeline.push(torch.ones(1, 2))
        pipeline.push_target(torch.ones(1, 1))
    pipeline.train(steps=3, checkpoint_interval=2)
    now = pipeline.checkpoint()
    assert checkpoints.qsize() == 2
    first, last = checkpoints.get()[0], checkpoints.get()[0]
    assert not torch.equal(first["weight"], last["weight"])
    assert torch.equal(last["weight"], now[0]["weight"])


def test_parameters_can_be_overwritten(pipelines: list[Pipeline]) -> None:
    outputs: queue.Queue[list[torch.Tensor]] = queue.Queue()
    pipeline = Pipeline([Stage("only", nn.Linear(2, 1, bias=False), "loom:1")])
    pipelines.append(pipeline)
    pipeline.start(training=False, outputs=outputs)
    pipeline.update_parameters(0, {"weight": torch.tensor([[1.0, 2.0]])})
    pipeline.push(torch.ones(1, 2))
    pipeline.forward()
    assert outputs.get(timeout=60)[0].tolist() == [[3.0]]
    for wrong in ({"wait": torch.ones(1, 2)}, {"weight": torch.ones(2, 2)}):
        with pytest.raises(PipelineError, match="weight"):
            pipeline.update_parameters(0, wrong)
    assert pipeline.running


def test_copies_leave_the_modules_alone() -> None:
    model = nn.Linear(2, 2)
    before = copy.deepcopy(model.state_dict())
    stage = Stage("only", model, "loom:0", keep_modules=False)
    stage.update({"weight": torch.zeros(2, 2)})
    torch.testing.assert_close(dict(model.state_dict()), dict(before))
    assert all(p.device.type == "cpu" for p in model.parameters())

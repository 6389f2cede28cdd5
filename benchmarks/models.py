"""Whole models on loom against the CPU: forward pass and training step, alternating in one process.

A training step is zero_grad, forward, cross-entropy, backward and SGD with momentum; it ends by
reading the loss.
Prints a line per case, ratio = device / cpu; `target` says how large it may be.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import compiled_models, nets
from benchmarks._common import (
    QUICK,
    Budget,
    Measured,
    Row,
    alternate,
    geomean,
    parser,
    table_of,
    write_docs,
    write_json,
)

COMMAND = "python -m benchmarks.models"
SEED = 0
BUDGET = Budget(rounds=31, block_seconds=2e-2)


FORWARD, TRAINING = "forward", "training step"
# With large tensors the cached segments spare the page faults of the CPU's allocator.
TARGET = 1.05
TARGETS = {f"ResNet-18 16x3x224x224, {TRAINING}": 0.95}


def target(case: str) -> float:
    """Returns how large the ratio of a case may be."""
    if case.endswith(tuple(f", {kind}" for kind in compiled_models.TARGETS)):
        return compiled_models.TARGETS[compiled_models.kind_of(case)]
    return TARGETS.get(case, TARGET)


@dataclass(frozen=True)
class Model:
    """A network with inputs and labels for one batch, on the host, and what is timed of it."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    labels: Callable[[], Tensor]
    passes: tuple[str, ...] = (FORWARD, TRAINING)
    is_compiled: bool = False

    def batch(self, quick: bool) -> tuple[Tensor, Tensor]:
        """Returns inputs and labels; where numbers mean nothing, of two samples."""
        inputs, labels = self.inputs(), self.labels()
        return (inputs[:2], labels[:2]) if quick else (inputs, labels)


MODELS = (
    Model(
        "ResNet-18 16x3x64x64",
        nets.ResNet18,
        lambda: torch.randn(16, 3, 64, 64),
        lambda: torch.randint(0, 1000, (16,)),
        is_compiled=True,
    ),
    Model(
        "ResNet-18 16x3x224x224",
        nets.ResNet18,
        lambda: torch.randn(16, 3, 224, 224),
        lambda: torch.randint(0, 1000, (16,)),
        passes=(TRAINING,),
    ),
    Model(
        "GPT 6x256 8x128 tokens",
        nets.GPT,
        lambda: torch.randint(0, 512, (8, 128)),
        lambda: torch.randint(0, 512, (8, 128)),
        is_compiled=True,
    ),
    Model(
        "LSTM 2x256 16x64 steps",
        nets.LSTMClassifier,
        lambda: torch.randn(16, 64, 256),
        lambda: torch.randint(0, 10, (16,)),
    ),
    Model(
        "MLP 64-128-10 32",
        nets.mlp,
        lambda: torch.randn(32, 64),
        lambda: torch.randint(0, 10, (32,)),
        is_compiled=True,
    ),
)


def forward(model: nn.Module, inputs: Tensor, device: torch.device) -> Measured:
    """Returns the timed forward pass, in eval mode and without gradients."""
    model.eval()
    pass_ = torch.no_grad()(lambda: model(inputs))
    return Measured("run()", {"run": pass_}, device)


def training_step(model: nn.Module, inputs: Tensor, labels: Tensor, device: torch.device) -> Measured:
    """Returns the timed training step."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return Measured("run()", {"run": step}, device)


def measure(model: Model, device: torch.device, budget: Budget) -> list[Row]:
    """Times the passes of one model, printing a line each."""
    torch.manual_seed(SEED)
    cpu = torch.device("cpu")
    made, (inputs, labels) = model.make(), model.batch(quick=budget is QUICK)
    places = [
        (copy.deepcopy(made).to(place), inputs.to(place), labels.to(place), place) for place in (cpu, device)
    ]
    with torch.no_grad():
        results = [net(x).cpu() for net, x, _, _ in places]
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)
    rows = []
    for name in model.passes:
        timed = [
            forward(net, x, place) if name == FORWARD else training_step(net, x, y, place)
            for net, x, y, place in places
        ]
        row = alternate(f"{model.name}, {name}", *timed, budget)
        print(
            f"{row.name:<38} cpu {row.cpu_seconds * 1e3:8.3f} ms  {device.type} "
            f"{row.device_seconds * 1e3:8.3f} ms  ratio {row.ratio:5.2f} (target {target(row.name)})",
            flush=True,
        )
        rows.append(row)
    return rows


def compiled_cases(quick: bool) -> list[Model]:
    """Returns the models that are compiled, too; for tests none, since compiling takes long."""
    return [] if quick else [model for model in MODELS if model.is_compiled]


def docs_body(rows: list[Row]) -> str:
    """Returns the section for docs/performance.md."""
    return table_of(rows, target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parser("Time of whole models, device against CPU.").parse_args(arguments)
    device = torch.device(options.device)
    budget = QUICK if options.quick else BUDGET
    rows = [row for model in MODELS for row in measure(model, device, budget)]
    compiled = [
        row
        for model in compiled_cases(options.quick)
        for row in compiled_models.measure(model.name, model.make, model.inputs(), device, budget)
    ]
    total = geomean(row.ratio for row in rows)
    if options.json:
        json_rows = [{**row.as_json(), "target": target(row.name)} for row in [*rows, *compiled]]
        write_json(options.json, {"geomean": total, "command": COMMAND, "rows": json_rows})
    if options.write_docs:
        write_docs(
            "models", "Whole models", f"{docs_body(rows)}\n\n{compiled_models.docs_body(compiled)}", COMMAND
        )
    missed = [row for row in [*rows, *compiled] if row.ratio > target(row.name)]
    for row in missed:
        print(f"missed: {row.name} {row.ratio:.3f}, target {target(row.name)}")
    print(f"geomean {total:.3f}, worst {max(row.ratio for row in rows):.3f}", flush=True)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

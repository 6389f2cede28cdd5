"""Where the time of small training steps goes: each part on loom against the CPU, alternating in one process.

Each part alone, and then whole steps that leave one part out: what a part costs in a step is not what it
costs alone. PyTorch runs the backward pass of any device but the CPU in a thread of that device, and its
optimizers take the `foreach` form there; beside both stands the same without that.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import QUICK, Measured, Row, alternate, parser, report_rows, write_docs
from benchmarks.models import BUDGET, MODELS, SEED
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.step_parts"
SMALL = ("LSTM 2x256 16x64 steps", "MLP 64-128-10 32")

Part = Callable[[], object]


def parts(model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Part]:
    """Returns what a training step consists of, each to be run any number of times."""
    model.train()
    parameters = list(model.parameters())

    def loss() -> Tensor:
        return cross_entropy(model(inputs).flatten(0, -2), labels.flatten())

    kept = loss()

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(kept, parameters, retain_graph=True)

    def backward_in_this_thread() -> tuple[Tensor, ...]:
        with torch.autograd.set_multithreading_enabled(False):
            return backward()

    for parameter, gradient in zip(parameters, backward(), strict=True):
        parameter.grad = gradient * 1e-9
    by_default = torch.optim.SGD(parameters, lr=1e-9, momentum=0.9)
    one_by_one = torch.optim.SGD(parameters, lr=1e-9, momentum=0.9, foreach=False)

    def step(is_read: bool = True, is_updated: bool = True) -> None:
        by_default.zero_grad()
        value = loss()
        value.backward()
        if is_updated:
            by_default.step()
        if is_read:
            value.item()

    return {
        "forward and loss": loss,
        "backward": backward,
        "backward, in the calling thread": backward_in_this_thread,
        "SGD with momentum": by_default.step,
        "SGD with momentum, foreach=False": one_by_one.step,
        "whole step": step,
        "whole step, the loss not read": functools.partial(step, is_read=False),
        "whole step, without SGD": functools.partial(step, is_updated=False),
    }


def measure(device: torch.device, quick: bool) -> Iterator[Row]:
    """Times the parts of the small models, printing a line each."""
    cpu = torch.device("cpu")
    for model in MODELS:
        if model.name not in SMALL:
            continue
        torch.manual_seed(SEED)
        made, (inputs, labels) = model.make(), model.batch(quick)
        here, there = (
            parts(copy.deepcopy(made).to(at), inputs.to(at), labels.to(at)) for at in (cpu, device)
        )
        for name in here:
            timed = [
                Measured("run()", {"run": of[name]}, place) for of, place in ((here, cpu), (there, device))
            ]
            row = alternate(f"{model.name}, {name}", *timed, QUICK if quick else BUDGET)
            print(
                f"{row.name:<58} cpu {row.cpu_seconds * 1e6:9.1f} us  {device.type} "
                f"{row.device_seconds * 1e6:9.1f} us  ratio {row.ratio:5.2f}",
                flush=True,
            )
            yield row


def docs_body(rows: Sequence[Row]) -> str:
    """Returns the section for docs/performance.md."""
    lines = [
        [row.name, f"{row.cpu_seconds * 1e6:.1f}", f"{row.device_seconds * 1e6:.1f}", f"{row.ratio:.2f}"]
        for row in rows
    ]
    why = (
        "Each part alone, then whole steps that leave one out: `zero_grad`, forward, loss, backward, SGD, "
        "and reading the loss. PyTorch runs the backward pass of any device but the CPU in a thread of that "
        "device (`torch.autograd.set_multithreading_enabled(False)`: in the calling one), and its optimizers "
        "take the `foreach` form there."
    )
    return f"{why}\n\n{markdown_table(['part', 'cpu us', 'loom us', 'ratio'], lines)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status. It has no target: those of whole steps are in `models`."""
    options = parser("Parts of small training steps, device against CPU.").parse_args(arguments)
    rows = list(measure(torch.device(options.device), options.quick))
    report_rows(options, rows, COMMAND)
    if options.write_docs:
        write_docs("parts", "Parts of small training steps", docs_body(rows), COMMAND)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

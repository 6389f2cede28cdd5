"""Where the time of small training steps goes: each part on loom against the CPU, alternating in one process.

Each part alone, and then whole steps that leave one part out: what a part costs in a step is not what it
costs alone. PyTorch runs the backward pass of any device but the CPU in a thread of that device, and its
optimizers take the `foreach` form there; beside both stands the same without that.

Where `perf` is installed, it also samples whole steps, and counts the samples by the library they fall into.
"""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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

WHOLE = "whole step"
# A profile: how many steps come before it, how many seconds it takes, and how many samples a second.
WARM_STEPS, PROFILED_S, PROFILED_HZ = 1000, 10, 1000
# The libraries whose samples count as a name's; what is in none of them is "other".
LIBRARIES = {
    "Python": ("libpython", "python3"),
    "PyTorch": ("libtorch", "libc10"),
    "torch-loom": ("_C.cpython",),
}

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

    def step(
        is_read: bool = True, is_updated: bool = True, optimizer: torch.optim.Optimizer = by_default
    ) -> None:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        if is_updated:
            optimizer.step()
        if is_read:
            value.item()

    return {
        "forward and loss": loss,
        "backward": backward,
        "backward, in the calling thread": backward_in_this_thread,
        "SGD with momentum": by_default.step,
        "SGD with momentum, foreach=False": one_by_one.step,
        WHOLE: step,
        "whole step, foreach=False": functools.partial(step, optimizer=one_by_one),
        "whole step, the loss not read": functools.partial(step, is_read=False),
        "whole step, without SGD": functools.partial(step, is_updated=False),
    }


def parts_of(name: str, quick: bool, *devices: torch.device) -> list[dict[str, Part]]:
    """Returns the parts of a small model's step on each device, with the same parameters and inputs."""
    model = next(model for model in MODELS if model.name == name)
    torch.manual_seed(SEED)
    made, (inputs, labels) = model.make(), model.batch(quick)
    return [parts(copy.deepcopy(made).to(at), inputs.to(at), labels.to(at)) for at in devices]


def run_for_ever(name: str, device: str) -> None:
    """Runs whole steps until the process is killed, and prints a line when it is warm.

    One thread computes: others would spin between the kernels, and their samples say nothing.
    """
    torch.set_num_threads(1)
    step = parts_of(name, False, torch.device(device))[0][WHOLE]
    for _ in range(WARM_STEPS):
        step()
    print("warm", flush=True)
    while True:
        step()


def samples(name: str, device: str, folder: Path, seconds: float) -> Counter[str]:
    """Returns how many samples of whole steps in a process of their own fall into each of LIBRARIES."""
    recorded = folder / f"{device}.perf"
    steps = f"from benchmarks.step_parts import run_for_ever; run_for_ever({name!r}, {device!r})"
    with subprocess.Popen(
        [sys.executable, "-c", steps], stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(PROFILED_HZ), "-o", str(recorded)]
            subprocess.run([*record, "-p", str(process.pid), "--", "sleep", str(seconds)], check=True)
        finally:
            process.kill()
    listing = subprocess.run(
        ["perf", "report", "-q", "-i", str(recorded), "--sort", "dso", "--stdio", "-n", "-t", ","],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    counts: Counter[str] = Counter()
    for line in filter(None, map(str.strip, listing.splitlines())):
        _, count, library = (cell.strip() for cell in line.split(",", 2))
        names = (name for name, prefixes in LIBRARIES.items() if library.startswith(prefixes))
        counts[next(names, "other")] += int(count)
    return counts


def profile(device: str, quick: bool) -> dict[str, Counter[str]]:
    """Returns the samples of the smallest model's steps on the CPU and on the device; none without `perf`."""
    if shutil.which("perf") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        seconds = 0.2 if quick else PROFILED_S
        return {at: samples(SMALL[-1], at, Path(folder), seconds) for at in ("cpu", device)}


def measure(device: torch.device, quick: bool) -> Iterator[Row]:
    """Times the parts of the small models, printing a line each."""
    cpu = torch.device("cpu")
    for model in SMALL:
        here, there = parts_of(model, quick, cpu, device)
        for name in here:
            timed = [
                Measured("run()", {"run": of[name]}, place) for of, place in ((here, cpu), (there, device))
            ]
            row = alternate(f"{model}, {name}", *timed, QUICK if quick else BUDGET)
            print(
                f"{row.name:<58} cpu {row.cpu_seconds * 1e6:9.1f} us  {device.type} "
                f"{row.device_seconds * 1e6:9.1f} us  ratio {row.ratio:5.2f}",
                flush=True,
            )
            yield row


def profile_table(profiles: Mapping[str, Counter[str]]) -> str:
    """Returns a table of the shares of each library, a column for each device."""
    shares = [
        [name, *(f"{counts[name] / counts.total():.1%}" for counts in profiles.values())]
        for name in (*LIBRARIES, "other")
    ]
    return markdown_table(["library", *profiles], shares)


def docs_body(rows: Sequence[Row], profiles: Mapping[str, Counter[str]]) -> str:
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
    body = f"{why}\n\n{markdown_table(['part', 'cpu us', 'loom us', 'ratio'], lines)}"
    if profiles:
        where = f"Where the samples of `perf` fall in whole steps of {SMALL[-1]}, with one intra-op thread:"
        body += f"\n\n{where}\n\n{profile_table(profiles)}"
    return body


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status. It has no target: those of whole steps are in `models`."""
    options = parser("Parts of small training steps, device against CPU.").parse_args(arguments)
    rows = list(measure(torch.device(options.device), options.quick))
    profiles = {} if options.quick else profile(options.device, options.quick)
    report_rows(options, rows, COMMAND)
    if profiles:
        print(profile_table(profiles))
    if options.write_docs:
        write_docs("parts", "Parts of small training steps", docs_body(rows, profiles), COMMAND)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

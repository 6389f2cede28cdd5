"""`loom demo`: trains a vision transformer on real digits; checks accuracy and losses against cpu."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from torch_loom import config
from torch_loom.tools import console
from torch_loom.tools.digits import Digits, MissingDemoDependencyError, load
from torch_loom.tools.training import NUM_COMPARED_STEPS, Training, num_steps, one_thread, predict, train

MIN_ACCURACY = 0.97
MAX_SECONDS = 90.0
MAX_LOSS_DIFFERENCE = 1e-4
PROGRESS_EVERY_STEPS = 10
SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Check:
    """A number that the demo promises: what it is, what was measured, what was promised.

    One that does not decide tells of the machine, too: a slow or busy one may miss it.
    """

    name: str
    measured: str
    target: str
    met: bool
    decides: bool = True

    @property
    def failed(self) -> bool:
        return self.decides and not self.met


def largest_relative_difference(losses: list[float], reference: list[float]) -> float:
    """Returns the largest relative difference between losses of equal steps; NaN differs infinitely."""
    differences = [abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True)]
    return max(difference if difference == difference else float("inf") for difference in differences)


def picture(images: Tensor, predictions: Tensor, labels: Tensor) -> str:
    """Draws images [N, 1, H, W] side by side, two characters a pixel, with prediction and truth below."""
    height, width = images.shape[-2:]
    levels = (images * (len(SHADES) - 1)).round().long().squeeze(1).tolist()
    lines = ["   ".join("".join(SHADES[v] * 2 for v in image[y]) for image in levels) for y in range(height)]
    captions = [
        f"says {said}" + ("" if said == is_ else f", is {is_}")
        for said, is_ in zip(predictions.tolist(), labels.tolist(), strict=True)
    ]
    return "\n".join([*lines, "   ".join(f"{caption:^{2 * width}}" for caption in captions)])


def pictured(predictions: Tensor, labels: Tensor) -> Tensor:
    """Returns the indices of four digits to show, the first wrong one among them if there is one."""
    right = (predictions == labels).nonzero().flatten()
    wrong = (predictions != labels).nonzero().flatten()[:1]
    return torch.cat([right[: 4 - len(wrong)], wrong])


def train_with_progress(digits: Digits, device: torch.device, epochs: int, seed: int) -> Training:
    """Trains on `device` under a progress bar that shows the loss."""
    columns = (
        TextColumn("training on [bold]{task.fields[device]}"),
        BarColumn(),
        TextColumn("step {task.completed:.0f} of {task.total:.0f}, loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    total = num_steps(digits, epochs)
    with Progress(*columns, console=console.out) as progress:
        task = progress.add_task("train", total=total, device=str(device), loss=float("nan"))

        def on_step(step: int, loss: Tensor) -> None:
            # Reading the loss waits for the device, so not at every step.
            if step % PROGRESS_EVERY_STEPS == 0 or step == total:
                progress.update(task, completed=step, loss=loss.item())

        return train(digits, device, epochs, seed, on_step=on_step)


def memory_rows(device: torch.device) -> list[tuple[str, str]]:
    """Returns the peaks of device memory, allocated and reserved, in MiB; nothing for the host."""
    if device.type == "cpu":
        return []
    module = torch.get_device_module(device)
    peaks = {"allocated": module.max_memory_allocated(device), "reserved": module.max_memory_reserved(device)}
    return [
        (f"device memory {name}, peak", f"{peak_bytes / 2**20:.2f} MiB") for name, peak_bytes in peaks.items()
    ]


def results_table(checks: list[Check], device: torch.device) -> Table:
    """Returns the table of what was measured against what was promised."""
    table = Table("", "measured", "target", "")
    for check in checks:
        table.add_row(
            check.name,
            check.measured,
            check.target,
            "[green]met" if check.met else "[bold red]missed" if check.failed else "[yellow]missed",
        )
    for name, measured in memory_rows(device):
        table.add_row(name, measured, "", "")
    return table


def open_device(name: str | None) -> torch.device:
    """Returns the device that the user named, proven to work; a bad device ends the command."""
    try:
        device = torch.device(name or f"{config.device_name()}:0")
        torch.ones(1, device=device).add_(1).item()
    except (RuntimeError, ValueError, AssertionError) as error:
        console.fail(str(error).splitlines()[0])
    return device


def run(device_name: str | None, epochs: int, seed: int) -> None:
    """Trains, compares and reports; ends with exit status 1 if accuracy or losses miss their targets."""
    try:
        digits = load()
    except MissingDemoDependencyError as error:
        console.fail(error)
    device = open_device(device_name)
    if device.type != "cpu":
        torch.get_device_module(device).reset_peak_memory_stats(device)

    with one_thread():
        reference = train(digits, torch.device("cpu"), epochs, seed, max_steps=NUM_COMPARED_STEPS)
        began = time.perf_counter()
        training = train_with_progress(digits, device, epochs, seed)
        predictions = predict(training.model, digits.held_out_images, device)
        seconds = time.perf_counter() - began

    num_right = int((predictions == digits.held_out_labels).sum())
    num_held_out = len(digits.held_out_labels)
    accuracy = num_right / num_held_out
    difference = largest_relative_difference(training.first_losses, reference.first_losses)
    checks = [
        Check(
            "accuracy on held-out digits",
            f"{accuracy:.2%} ({num_right} of {num_held_out})",
            f">= {MIN_ACCURACY:.0%}",
            accuracy >= MIN_ACCURACY,
        ),
        Check(
            "time to train and test",
            f"{seconds:.1f} s",
            f"<= {MAX_SECONDS:.0f} s",
            seconds <= MAX_SECONDS,
            decides=False,
        ),
        Check(
            f"losses against cpu, {len(reference.first_losses)} steps, largest relative difference",
            f"{difference:.1e}",
            f"<= {MAX_LOSS_DIFFERENCE:.0e}",
            difference <= MAX_LOSS_DIFFERENCE,
        ),
    ]
    shown = pictured(predictions, digits.held_out_labels)
    drawing = picture(digits.held_out_images[shown], predictions[shown], digits.held_out_labels[shown])
    console.out.print(drawing, highlight=False)
    console.out.print(results_table(checks, device))
    failed = [check for check in checks if check.failed]
    for check in failed:
        console.show_error(f"{check.name}: {check.measured}, target {check.target}")
    if failed:
        raise SystemExit(1)

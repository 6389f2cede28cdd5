"""Trains the demo's vision transformer; the same call on two devices sees the same weights and batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.tools.digits import Digits, batches
from torch_loom.tools.vit import VisionTransformer

BATCH_SIZE = 64
PEAK_LEARNING_RATE = 3e-3
WARMUP_SHARE = 0.1
WEIGHT_DECAY = 0.1
LABEL_SMOOTHING = 0.1
NUM_COMPARED_STEPS = 20

OnStep = Callable[[int, Tensor], None]
"""Called after each step with its number, from 1, and its loss, a scalar on the device."""


@dataclass(frozen=True)
class Training:
    """A finished training: the model on its device, its first losses, and how long it took."""

    model: VisionTransformer
    first_losses: list[float]
    seconds: float


def num_steps(digits: Digits, epochs: int) -> int:
    """Returns the number of optimizer steps in `epochs` passes over the training digits."""
    return len(digits.train_labels) // BATCH_SIZE * epochs


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits ops to one thread inside the context.

    Ops this small gain little from a second thread, and lose a hundredfold to it on a busy machine, where a
    thread that waits at OpenMP's barrier keeps the other from running.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(
    digits: Digits,
    device: torch.device,
    epochs: int,
    seed: int,
    max_steps: int | None = None,
    on_step: OnStep | None = None,
) -> Training:
    """Trains on `device` with AdamW under a warm-up and a cosine, from host batches.

    Args:
        digits: the data, on the host.
        device: where model, gradients and optimizer state live.
        epochs: passes over the training digits; they also set the learning-rate schedule.
        seed: makes the initial weights and the batches, both on the host, hence alike for every device.
        max_steps: stops early after so many steps, without changing the schedule.
        on_step: called after every step.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = VisionTransformer()
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, total_steps=num_steps(digits, epochs), pct_start=WARMUP_SHARE
    )
    first_losses: list[Tensor] = []
    began = time.perf_counter()
    for step, (images, labels) in enumerate(islice(batches(digits, BATCH_SIZE, epochs, seed), max_steps), 1):
        logits = model(images.to(device))
        loss = functional.cross_entropy(logits, labels.to(device), label_smoothing=LABEL_SMOOTHING)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step <= NUM_COMPARED_STEPS:
            first_losses.append(loss.detach())
        if on_step is not None:
            on_step(step, loss.detach())
    losses: list[float] = torch.stack(first_losses).tolist()  # waits for the device
    return Training(model, losses, time.perf_counter() - began)


def predict(model: VisionTransformer, images: Tensor, device: torch.device) -> Tensor:
    """Returns the predicted digit of each image [N, 1, 8, 8], int64 [N] on the host."""
    with torch.no_grad():
        logits: Tensor = model(images.to(device))
        return logits.argmax(1).cpu()

"""Parts of a training program, with three faults that a CPU does not show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch


def prefetched(batches: Iterable[torch.Tensor], device: str) -> Iterator[torch.Tensor]:
    """Copy batches to the device on a stream of their own, and scale them there."""
    side = torch.cuda.Stream()
    for batch in batches:
        with torch.cuda.stream(side):
            on_device = batch.pin_memory().to(device, non_blocking=True) / 255
        yield on_device  # the current stream does not wait for the other


def mean_losses(model: torch.nn.Module, batches: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the mean loss over batches."""
    losses = [model(batch).square().mean() for batch in batches]  # each keeps the graph of its batch
    return torch.stack([loss.detach() for loss in losses]).mean()


def masked(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return scores with those behind each row's length set to minus infinity."""
    positions = torch.arange(scores.shape[1])  # on the CPU
    return scores.masked_fill(positions >= lengths[:, None], float("-inf"))

"""Parts of a training program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch


def prefetched(batches: Iterable[torch.Tensor], device: str) -> Iterator[torch.Tensor]:
    """Copy batches to the device on a stream of their own, and scale them there."""
    side = torch.cuda.Stream()
    for batch in batches:
        with torch.cuda.stream(side):
            on_device = batch.pin_memory().to(device, non_blocking=True) / 255
        torch.cuda.current_stream().wait_stream(side)
        on_device.record_stream(torch.cuda.current_stream())
        yield on_device


def mean_losses(model: torch.nn.Module, batches: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the mean loss over batches."""
    losses = [model(batch).square().mean().detach() for batch in batches]
    return torch.stack(losses).mean()


def masked(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return scores with those behind each row's length set to minus infinity."""
    positions = torch.arange(scores.shape[1], device=scores.device)
    return scores.masked_fill(positions >= lengths[:, None], float("-inf"))

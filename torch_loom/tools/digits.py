"""Scikit-learn's handwritten digits: 1,797 real 8x8 scans that ship in its package, split and batched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

SPLIT_SEED = 0
HELD_OUT_SHARE = 0.2
MAX_SHIFT_PIXELS = 1


class MissingDemoDependencyError(RuntimeError):
    """The demo's extra is not installed."""

    def __init__(self, module: str) -> None:
        super().__init__(f"{module} is not installed; the demo needs it: pip install {module}")


@dataclass(frozen=True)
class Digits:
    """Host tensors. Images: float32 [N, 1, 8, 8] with ink from 0 to 1. Labels: int64 [N], 0 to 9."""

    train_images: Tensor
    train_labels: Tensor
    held_out_images: Tensor
    held_out_labels: Tensor


def load() -> Digits:
    """Returns the digits, a fifth of every class held out; the split is the same on every run.

    Raises:
        MissingDemoDependencyError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
        from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise MissingDemoDependencyError("scikit-learn") from error
    scans = load_digits()
    train, held_out = train_test_split(
        range(len(scans.target)), test_size=HELD_OUT_SHARE, random_state=SPLIT_SEED, stratify=scans.target
    )
    images = torch.from_numpy(scans.images).float().div_(16).unsqueeze(1)
    labels = torch.from_numpy(scans.target).long()
    return Digits(images[train], labels[train], images[held_out], labels[held_out])


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Returns `images` [N, 1, H, W], each moved by up to `MAX_SHIFT_PIXELS` along both axes."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (MAX_SHIFT_PIXELS,) * 4).squeeze(1)
    offsets = torch.randint(0, 2 * MAX_SHIFT_PIXELS + 1, (2, count, 1), generator=generator)
    rows = (offsets[0] + torch.arange(height)).unsqueeze(2)
    columns = (offsets[1] + torch.arange(width)).unsqueeze(1)
    return padded[torch.arange(count).view(-1, 1, 1), rows, columns].unsqueeze(1)


def batches(digits: Digits, batch_size: int, epochs: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields host batches of shifted training images and labels; the same `seed` gives the same batches.

    The last, smaller batch of an epoch is left out: `len(train) // batch_size` batches an epoch.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(digits.train_labels)
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator)
        for start in range(0, count - batch_size + 1, batch_size):
            picked = order[start : start + batch_size]
            yield shifted(digits.train_images[picked], generator), digits.train_labels[picked]

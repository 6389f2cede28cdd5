"""Trains the demo's vision transformer in block formats and prints the accuracy that each reaches.

python examples/numerics_training.py --epochs 10
python examples/numerics_training.py --epochs 4 --silicon
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from torch_loom.numerics import DataFormat, emulate
from torch_loom.tools import digits, vit

FORMATS = (None, DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b)
# Of Bfp8_b: whose sums, and the format that they are kept in.
SUMS = (
    ("fast", DataFormat.Float16_b),
    ("fast", DataFormat.Float32),
    ("silicon", DataFormat.Float16_b),
    ("silicon", DataFormat.Float32),
)
BATCH = 64


def accuracy(model: nn.Module, data: digits.Digits) -> float:
    model.eval()
    with torch.no_grad():
        predictions = model(data.held_out_images).argmax(-1)
    return float((predictions == data.held_out_labels).double().mean())


def train(
    data: digits.Digits,
    fmt: DataFormat | None,
    epochs: int,
    mode: str = "fast",
    accumulate: DataFormat | None = None,
) -> float:
    torch.manual_seed(0)
    model: nn.Module = vit.VisionTransformer()
    running = model if fmt is None else emulate(model, fmt, mode=mode, accumulate=accumulate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    running.train()
    for images, labels in digits.batches(data, BATCH, epochs, seed=0):
        optimizer.zero_grad()
        functional.cross_entropy(running(images), labels).backward()
        optimizer.step()
    return accuracy(running, data)


def accuracies(epochs: int) -> Iterator[tuple[str, float]]:
    """Name and accuracy of float32 and of each format, as they are reached."""
    data = digits.load()
    for fmt in FORMATS:
        yield "float32" if fmt is None else fmt.name, train(data, fmt, epochs)


def accuracies_of_sums(epochs: int) -> Iterator[tuple[str, DataFormat, float]]:
    """Mode, format of sums and accuracy of Bfp8_b, as they are reached."""
    data = digits.load()
    for mode, accumulate in SUMS:
        yield mode, accumulate, train(data, DataFormat.Bfp8_b, epochs, mode, accumulate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--silicon", action="store_true", help="Bfp8_b with each mode's sums")
    given = parser.parse_args()
    epochs = given.epochs
    if given.silicon:
        for mode, accumulate, reached in accuracies_of_sums(epochs):
            words = f"Bfp8_b, {mode}, sums in {accumulate.name}"
            print(f"{words:<32} accuracy on digits held out {reached:.4f}", flush=True)
        return
    for name, reached in accuracies(epochs):
        print(f"{name:<8} accuracy on digits held out {reached:.4f}", flush=True)


if __name__ == "__main__":
    main()

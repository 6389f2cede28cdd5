"""`python -m tools.demo_settings`: compare settings of the demo's training on a validation split.

The split is a fifth of the training digits. The held-out digits, on which `loom demo` reports, are not used.
Prints the accuracy of each setting, the mean of several seeds, on the CPU.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

import torch

from torch_loom.tools import training
from torch_loom.tools.digits import Digits, load

LEARNING_RATES = (1e-3, 3e-3, 1e-2)
WEIGHT_DECAYS = (0.01, 0.1)
VALIDATION_SHARE = 0.2
SPLIT_SEED = 1


def validation_split(digits: Digits) -> Digits:
    """Return the training digits alone: a fifth of every class stands in the place of those held out."""
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    train, validation = train_test_split(
        range(len(digits.train_labels)),
        test_size=VALIDATION_SHARE,
        random_state=SPLIT_SEED,
        stratify=digits.train_labels,
    )
    images, labels = digits.train_images, digits.train_labels
    return Digits(images[train], labels[train], images[validation], labels[validation])


def accuracy(digits: Digits, epochs: int, seed: int) -> float:
    """Return the share of the validation digits that a training with the present settings gets right."""
    cpu = torch.device("cpu")
    found = training.train(digits, cpu, epochs, seed)
    predictions = training.predict(found.model, digits.held_out_images, cpu)
    return float((predictions == digits.held_out_labels).float().mean())


def main() -> None:
    """Print a line for each setting, and the best one."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_settings", description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    digits = validation_split(load())
    results = {}
    with training.one_thread():
        for rate, decay in itertools.product(LEARNING_RATES, WEIGHT_DECAYS):
            training.PEAK_LEARNING_RATE, training.WEIGHT_DECAY = rate, decay
            found = [accuracy(digits, options.epochs, seed) for seed in range(options.seeds)]
            results[rate, decay] = statistics.fmean(found)
            print(f"learning rate {rate}, weight decay {decay}: {results[rate, decay]:.2%}", flush=True)
    rate, decay = max(results, key=lambda setting: results[setting])
    print(f"best: learning rate {rate}, weight decay {decay}")


if __name__ == "__main__":
    main()

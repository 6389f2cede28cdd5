"""A demo in the style of the vendor's: a model's output, and labels from the network."""

import pybuda
import requests
import torch
from torch import nn


def run() -> None:
    """Print the label."""
    labels = requests.get("https://example.org/labels.txt").text.splitlines()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    queue = pybuda.run_inference(pybuda.PyTorchModule("net", model), inputs=[(torch.rand(1, 64),)])
    output = queue.get(timeout=0.5)
    print(labels[output[0].value().argmax(-1)])


if __name__ == "__main__":
    run()

"""Runs a BERT or a ResNet over several chips, or saves it as an image and runs that.

python examples/pipeline_models.py bert --chips 4
python examples/pipeline_models.py resnet --chips 2 --size large
python examples/pipeline_models.py bert --image bert.tti

Prints the rate, and the picture of the pipeline (F forward, a dot is waiting).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from torch_loom import pybuda
from torch_loom.pybuda.run.session import running


class Embeddings(nn.Module):
    """Token ids [N, T] to vectors [N, T, width]."""

    def __init__(self, vocabulary: int, context: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        out: torch.Tensor = self.norm(self.tokens(ids) + self.places(places))
        return out


class EncoderBlock(nn.Module):
    """Attention and a perceptron, each followed by a norm, as in BERT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = self.project(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value)
        x = self.norm1(x + self.merge(seen.transpose(1, 2).reshape(batch, length, width)))
        out: torch.Tensor = self.norm2(x + self.contract(functional.gelu(self.expand(x))))
        return out


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut, as in ResNet-50."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.branch = nn.Sequential(
            *(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.branch(x) + self.shortcut(x))


class Head(nn.Module):
    """Images of features to logits."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x.mean((2, 3)))
        return out


def bert(layers: int = 24, width: int = 1024, heads: int = 16, vocabulary: int = 30522) -> nn.Sequential:
    """BERT's encoder, block by block; the numbers are those of BERT-large."""
    blocks = (EncoderBlock(width, heads) for _ in range(layers))
    return nn.Sequential(Embeddings(vocabulary, 512, width), *blocks)


def resnet(depths: Sequence[int] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> nn.Sequential:
    """A ResNet of bottlenecks, block by block; the numbers are those of ResNet-50."""
    stem = nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    blocks, before = [], width
    for stage, depth in enumerate(depths):
        for number in range(depth):
            blocks.append(Bottleneck(before, width << stage, 2 if stage and not number else 1))
            before = 4 * width << stage
    return nn.Sequential(stem, *blocks, Head(before, classes))


def model_and_input(name: str, size: str, batch: int) -> tuple[nn.Sequential, torch.Tensor]:
    """A model in evaluation mode, and one micro-batch for it."""
    if name == "bert":
        made = bert() if size == "large" else bert(layers=7, width=64, heads=4, vocabulary=128)
        return made.eval(), torch.randint(128, (batch, 384 if size == "large" else 32))
    made = resnet() if size == "large" else resnet((2, 2, 2), 8, 10)
    pixels = 224 if size == "large" else 32
    return made.eval(), torch.rand(batch, 3, pixels, pixels)


def place(model: nn.Sequential, num_chips: int) -> pybuda.TTDevice:
    """Spread the blocks of a model over the chips, and return the first one."""
    blocks = list(model)
    ends = [len(blocks) * chip // num_chips for chip in range(num_chips + 1)]
    devices = [
        pybuda.TTDevice(
            f"chip{chip}",
            chip_ids=[chip],
            module=pybuda.PyTorchModule(f"part{chip}", nn.Sequential(*blocks[begin:end])),
        )
        for chip, (begin, end) in enumerate(itertools.pairwise(ends))
    ]
    return devices[0]


def run(first: pybuda.TTDevice, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], float, str]:
    """Return the outputs, micro-batches a second, and the picture of the pipeline's run."""
    for value in inputs:
        first.push_to_inputs(value)
    begin = time.perf_counter()
    outputs = pybuda.run_inference(input_count=len(inputs))
    got = [outputs.get()[0].value() for _ in inputs]
    rate = len(inputs) / (time.perf_counter() - begin)
    pybuda.sync()
    return got, rate, running.session.pipeline.report().draw()


def save(model: nn.Sequential, sample: torch.Tensor, path: str) -> str:
    """Compile a model for one chip, write the image, and return what it says of itself."""
    device = pybuda.TTDevice(
        "compiled",
        arch=pybuda.BackendDevice.Wormhole_B0,
        devtype=pybuda.BackendType.Golden,
        module=pybuda.PyTorchModule("whole", model),
    )
    return device.compile_to_image(img_path=path, sample_inputs=(sample,)).info()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=("bert", "resnet"))
    parser.add_argument("--chips", type=int, default=2)
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--image", metavar="FILE", help="save the model there, and run that on one chip")
    arguments = parser.parse_args()
    torch.loom.configure(devices=arguments.chips)  # type: ignore[attr-defined]
    torch.manual_seed(0)
    model, sample = model_and_input(arguments.model, arguments.size, arguments.batch)
    if arguments.image:
        print(save(model, sample, arguments.image))
        pybuda.pybuda_reset()
        first = pybuda.TTDevice.load_image(img_path=arguments.image)
    else:
        first = place(model, arguments.chips)
    outputs, rate, picture = run(first, [sample] * arguments.microbatches)
    print(f"{rate:.1f} micro-batches a second, each {tuple(sample.shape)} to {tuple(outputs[0].shape)}")
    print(picture)


if __name__ == "__main__":
    main()

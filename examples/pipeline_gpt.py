"""Trains a small GPT on Python's docstrings over two chips and a CPU; then generates with a KV cache.

python examples/pipeline_gpt.py --steps 200
python examples/pipeline_gpt.py --steps 200 --numbers Bfp8_b
torchrun --nproc-per-node 2 examples/pipeline_gpt.py --steps 200

Prints losses, the picture of the pipeline (F forward, B backward, O optimizer, a dot is waiting), and text.
"""

from __future__ import annotations

import argparse
import builtins
import inspect
import queue
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from torch_loom import pybuda
from torch_loom.pybuda.run.session import running

CONTEXT, WIDTH, HEADS, VOCABULARY = 32, 64, 4, 128
MICROBATCHES, BATCH = 4, 8


def corpus() -> torch.Tensor:
    """The docstrings of Python's built-in names, as ASCII codes."""
    texts = [inspect.getdoc(getattr(builtins, name)) or "" for name in sorted(dir(builtins))]
    joined = "\n".join(dict.fromkeys(texts)).encode("ascii", "ignore")
    return torch.tensor(list(joined))


class Cached(nn.Module):
    """What needs to know where the tokens stand; ``pybuda.run_generate`` calls ``set_position``."""

    start: int | None = None
    """Place of the first token in generation; None: no cache, as in training."""

    def set_position(self, start: int, num_tokens: int) -> None:
        self.start = start


class Block(Cached):
    """Attention and a perceptron, with a cache of keys and values for one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        shape = (1, HEADS, CONTEXT, WIDTH // HEADS)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.project(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        first = 0
        if self.start is not None:
            first, end = self.start, self.start + length
            cached_keys, cached_values = self.get_buffer("keys"), self.get_buffer("values")
            cached_keys[:, :, first:end], cached_values[:, :, first:end] = key, value
            key, value = cached_keys[:, :, :end], cached_values[:, :, :end]
        allowed = torch.ones(length, key.shape[2], dtype=torch.bool, device=x.device).tril(first)
        seen = functional.scaled_dot_product_attention(query, key, value, allowed)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        out: torch.Tensor = x + self.expand(self.norm2(x))
        return out


class Beginning(Cached):
    """Tokens to vectors, and the first blocks."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(num_blocks)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        first = self.start or 0
        places = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        out: torch.Tensor = self.blocks(self.tokens(tokens) + self.places(places))
        return out


class Ending(nn.Module):
    """The last blocks, and vectors to tokens."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(num_blocks)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.blocks(x))
        return out


class NextToken(nn.Module):
    """The loss: how surprising each next token is."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batches(number: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random stretches of the corpus, and the same one token later."""
    text, generator = corpus(), torch.Generator().manual_seed(seed)
    made = []
    for _ in range(number):
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator).tolist()
        made.append(tuple(torch.stack([text[s + k : s + k + CONTEXT] for s in starts]) for k in (0, 1)))
    return made  # type: ignore[return-value]


def place(
    num_blocks: int = 1, rate: float = 3e-3, numbers: pybuda.DataFormat | None = None
) -> tuple[pybuda.TTDevice, pybuda.CPUDevice]:
    """Two halves of the model on two chips, the loss on the CPU.

    With ``numbers`` the chips are Wormholes that compute in this format; otherwise they are exact.
    """
    halves = {"beginning": Beginning(num_blocks), "ending": Ending(num_blocks)}
    chips = []
    for chip, (name, half) in enumerate(halves.items()):
        made = pybuda.TTDevice(
            f"chip{chip}",
            chip_ids=[chip],
            arch=None if numbers is None else pybuda.BackendDevice.Wormhole_B0,
            devtype=pybuda.BackendType.Golden if numbers is None else pybuda.BackendType.Silicon,
            fp32_fallback=numbers or pybuda.DataFormat.Float16_b,
            optimizer=pybuda.Adam(rate, device_params=True),
        )
        made.place_module(pybuda.PyTorchModule(name, half))
        chips.append(made)
    last = pybuda.CPUDevice("cpu", module=pybuda.PyTorchModule("logits", nn.Identity()))
    last.place_loss_module(pybuda.PyTorchModule("next_token", NextToken()))
    return chips[0], last


def train(first: pybuda.TTDevice, last: pybuda.CPUDevice, num_steps: int) -> tuple[list[float], str]:
    """Return the loss of each micro-batch, and the picture of the pipeline's run."""
    losses: queue.Queue[Any] = queue.Queue()
    for tokens, targets in batches(num_steps * MICROBATCHES):
        first.push_to_inputs(tokens)
        last.push_to_target_inputs(targets)
    pybuda.run_training(steps=num_steps, microbatch_count=MICROBATCHES, loss_queue=losses)
    got = [float(losses.get()[0].value()) for _ in range(num_steps * MICROBATCHES)]
    pybuda.sync()
    return got, running.session.pipeline.report().draw()


def generate(first: pybuda.TTDevice, prompt: torch.Tensor, length: int) -> torch.Tensor:
    """Return the prompt and the likeliest tokens after it: one forward fills the caches, one adds a token."""
    pybuda.shutdown()
    outputs = pybuda.initialize_pipeline(training=False, sample_inputs=(prompt[None],))
    tokens, given, start = prompt.tolist(), prompt[None], 0
    while len(tokens) < length:
        first.push_to_inputs(given)
        pybuda.run_generate(input_count=1, tokens_per_iter=given.shape[1], token_id=start)
        start += given.shape[1]
        tokens.append(int(outputs.get()[0].value()[0, -1].argmax()))
        given = torch.tensor([tokens[-1:]])
    return torch.tensor(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=1, help="on each chip")
    parser.add_argument("--numbers", help="a data format that Wormhole chips compute in, such as Bfp8_b")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    numbers = getattr(pybuda.DataFormat, arguments.numbers) if arguments.numbers else None
    first, last = place(arguments.blocks, numbers=numbers)
    losses, picture = train(first, last, arguments.steps)
    tail = losses[-20:]
    print(f"loss: {losses[0]:.3f} at first, {sum(tail) / len(tail):.3f} over the last {len(tail)}")
    print(picture)
    tokens = generate(first, torch.tensor(list(b"Return the ")), CONTEXT)
    print(bytes(tokens.tolist()).decode())
    print(running.session.pipeline.report().draw())


if __name__ == "__main__":
    main()

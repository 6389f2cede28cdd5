"""How long compiling takes: a BERT-large-shaped model cold and from the cache, and growth with its layers.

Cold and cached are processes of their own with an empty and with a filled cache, from the call to the placed
executable; Python's and PyTorch's start is no part, what the compiler imports is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target

ROOT = Path(__file__).parent.parent
LAYERS, WIDTH, HEADS, LENGTH, WORDS = 24, 1024, 16, 384, 30522
GROWTH_LAYERS = (2, 48, 96)
SUBJECT = Subject(
    "compile",
    "Compiling",
    "How long torch_loom.compile takes.",
    {
        "cold": Target(
            60.0, "s", f"{LAYERS} layers of width {WIDTH} at {LENGTH} words, for wormhole_b0, the cache empty"
        ),
        "cached": Target(3.0, "s", "the same again in another process, from the cache"),
        "growth": Target(
            1.5,
            "x",
            f"layers of width 64: seconds for each layer from {GROWTH_LAYERS[-2]} to {GROWTH_LAYERS[-1]}, "
            f"over those from {GROWTH_LAYERS[0]} to {GROWTH_LAYERS[-2]}",
        ),
    },
)


class Layer(nn.Module):
    """One layer of an encoder, post-norm as BERT's."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm(x + self.out(mixed))
        return self.last_norm(x + self.down(nn.functional.gelu(self.up(x))))


class Encoder(nn.Module):
    """Embeddings and layers: of BERT-large's shape by default."""

    def __init__(
        self, layers: int = LAYERS, width: int = WIDTH, heads: int = HEADS, words: int = WORDS
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.layers(self.norm(self.words(ids) + self.places(places)))


def seconds(net: nn.Module, ids: torch.Tensor, cache: bool) -> tuple[float, list[dict[str, object]]]:
    """Compiles a model; returns seconds and the records of the passes."""
    import torch_loom

    began = time.perf_counter()
    executable = torch_loom.compile(net, (ids,), chip="wormhole_b0", cache=cache)
    return time.perf_counter() - began, executable.plan["passes"]


def one_process(device: torch.device, layers: int) -> None:
    """Compiles with the cache of the environment, and prints the result as JSON."""
    with torch.device(device):
        net = Encoder(layers).eval()
        ids = torch.zeros(1, LENGTH, dtype=torch.long)
    print(json.dumps(seconds(net, ids, cache=True)))


def in_processes(device: torch.device, layers: int, times: int) -> dict[str, list[float]]:
    """Compiles cold and cached in processes of their own; prints each pass of the last cold one."""
    found: dict[str, list[float]] = {"cold": [], "cached": []}
    for number in range(times):
        with tempfile.TemporaryDirectory() as folder:
            for kind, took in found.items():
                command = [sys.executable, __file__, "--one", str(layers), str(device)]
                env = {**os.environ, "TORCH_LOOM_COMPILE_CACHE": folder}
                done = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, check=True)
                value, passes = json.loads(done.stdout)
                took.append(value)
                if number == times - 1:
                    for each in passes:
                        name = f"{kind}: {each['name']}"
                        print(
                            f"{name:>24} {each['milliseconds']:9.1f} ms {each['ops_after']:6} ops", flush=True
                        )
    return found


def growth(device: torch.device, layers: Sequence[int], times: int) -> list[float]:
    """Returns for each round what a late layer takes, over an early one."""
    found = []
    with torch.device(device):
        ids = torch.zeros(1, 64, dtype=torch.long)
        nets = {count: Encoder(count, 64, 4, 100).eval() for count in layers}
    seconds(nets[layers[0]], ids, cache=False)
    for _ in range(times):
        took = {count: seconds(net, ids, cache=False)[0] for count, net in nets.items()}
        print("  ".join(f"{count} layers {value:.2f} s" for count, value in took.items()), flush=True)
        first, middle, last = layers[0], layers[-2], layers[-1]
        early = (took[middle] - took[first]) / (middle - first)
        found.append((took[last] - took[middle]) / (last - middle) / early)
    return found


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Measures the figures, printing a line each."""
    times = 1 if quick else 3
    found = in_processes(device, 2 if quick else LAYERS, times)
    found["growth"] = growth(device, (1, 3, 6) if quick else GROWTH_LAYERS, times)
    return [SUBJECT.show(Figure.of(name, values)) for name, values in found.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--one"]:
        one_process(torch.device(given[2]), int(given[1]))
        return 0
    return SUBJECT.run(lambda *how: measure(*how), given)


if __name__ == "__main__":
    sys.exit(main())

"""Replay of a graph against eager execution of the same work, on the same device.

The work is a training step of an MLP on tiny tensors: forward, mean squared error, backward, plain SGD
without `foreach`, about a hundred ops. Eager steps and replays alternate in one process; after the runs the
parameters of both must be equal to the bit. Ratio = replay / eager.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import QUICK, Budget, Measured, alternate, parser, write_docs, write_json
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.graphs"
TARGET = 0.5
SEED = 0
LAYERS = 12
WIDTH = 8
BATCH = 4
BUDGET = Budget(rounds=31, block_seconds=2e-2)


@dataclass(frozen=True)
class Result:
    """What one device showed; the ratio is the median of those of alternating blocks."""

    num_ops: int
    eager_seconds: float
    replay_seconds: float
    ratio: float


def mlp() -> nn.Module:
    """Returns linear layers with a ReLU between each two."""
    layers: list[nn.Module] = []
    for _ in range(LAYERS - 1):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH))


def training_step(net: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], None]:
    """Returns the step; gradients are kept where they are."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, foreach=False)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()

    return step


def count_nodes(graph: torch.accelerator.Graph, path: Path) -> int:
    """Returns how many commands a graph holds."""
    graph.enable_debug_mode()
    graph.debug_dump(str(path))
    text = path.read_text()
    path.unlink()
    return text.count("[label=")


def measure(device: torch.device, budget: Budget) -> Result:
    """Captures the step, checks the replay against eager, and times both."""
    torch.manual_seed(SEED)
    inputs, targets = (torch.randn(BATCH, WIDTH).to(device) for _ in range(2))
    nets = [mlp().to(device)]
    nets.append(copy.deepcopy(nets[0]))
    eager, captured = (training_step(net, inputs, targets) for net in nets)
    stream = torch.Stream(device)
    with stream:
        for _ in range(3):
            captured()
    stream.synchronize()
    for _ in range(3):
        eager()
    graph = torch.accelerator.Graph()
    with stream, graph:
        captured()
    for _ in range(20):
        eager()
        graph.replay()
    torch.accelerator.synchronize()
    for parameter, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        if not torch.equal(parameter.cpu(), other.cpu()):
            raise AssertionError("replays and eager steps led to different parameters")
    row = alternate(
        "MLP step",
        Measured("run()", {"run": eager}, device),
        Measured("run()", {"run": graph.replay}, device),
        budget,
    )
    num_ops = count_nodes(graph, Path(f"graph-{id(graph)}.dot"))
    return Result(num_ops, row.cpu_seconds, row.device_seconds, row.ratio)


def docs_body(result: Result) -> str:
    """Returns the section for docs/performance.md."""
    table = [
        [
            f"training step of an MLP, {result.num_ops} ops",
            f"{result.eager_seconds * 1e6:.1f}",
            f"{result.replay_seconds * 1e6:.1f}",
            f"{result.ratio:.2f}",
        ]
    ]
    header = ["case", "eager us", "replay us", "ratio"]
    return (
        f"{LAYERS} layers of {WIDTH} x {WIDTH}, batch {BATCH}, on loom. Target: ratio at most {TARGET}.\n\n"
        + markdown_table(header, table)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parser("Replay of a graph against eager.").parse_args(arguments)
    result = measure(torch.device(options.device), QUICK if options.quick else BUDGET)
    if options.json:
        write_json(
            options.json,
            {
                "ratio": result.ratio,
                "target": TARGET,
                "command": COMMAND,
                "num_ops": result.num_ops,
                "eager_seconds": result.eager_seconds,
                "replay_seconds": result.replay_seconds,
            },
        )
    if options.write_docs:
        write_docs("graphs", "Graphs", docs_body(result), COMMAND)
    if result.ratio > TARGET:
        print(f"missed: ratio {result.ratio:.3f}, target {TARGET}")
    print(
        f"{result.num_ops} ops, eager {result.eager_seconds * 1e6:.1f} us, "
        f"replay {result.replay_seconds * 1e6:.1f} us, ratio {result.ratio:.3f}",
        flush=True,
    )
    return 1 if options.check and result.ratio > TARGET else 0


if __name__ == "__main__":
    raise SystemExit(main())

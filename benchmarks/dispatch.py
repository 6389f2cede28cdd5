"""The cost of an op on loom against the CPU: 24 common ops on tiny and on 1 MB tensors, eager.

Prints a line per op, ratio = device / cpu, and last the geometric means. Targets: see `TARGETS`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import (
    FULL,
    QUICK,
    Budget,
    Measured,
    Row,
    alternate,
    geomean,
    parser,
    write_docs,
    write_json,
)
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.dispatch"
TARGETS = {"tiny": 1.08, "1mb": 1.0}
SEED = 0

Operands = dict[str, Tensor]


@dataclass(frozen=True)
class Size:
    """The shapes of one size class. `square` is for matrix products, `matrix` for the rest."""

    name: str
    matrix: tuple[int, int]
    square: tuple[int, int]
    batch: tuple[int, int, int]
    image: tuple[int, int, int, int]
    filters: tuple[int, int, int, int]
    table: tuple[int, int]


# Each float operand of "1mb" has 262,144 elements, 1 MiB (but filters and vectors).
SIZES = (
    Size("tiny", (4, 4), (8, 8), (4, 4, 4), (1, 3, 8, 8), (4, 3, 3, 3), (8, 8)),
    Size("1mb", (512, 512), (512, 512), (4, 256, 256), (4, 16, 64, 64), (16, 16, 3, 3), (512, 512)),
)


def random(*shape: int) -> Tensor:
    return torch.randn(shape)


def indices(size: Size) -> Tensor:
    return torch.randint(0, size.matrix[0], (size.matrix[0],))


# name, statement, operands. The statement is the timed code itself.
OPS: list[tuple[str, str, Callable[[Size], Operands]]] = [
    ("add", "torch.add(x, y)", lambda s: {"x": random(*s.matrix), "y": random(*s.matrix)}),
    ("mul", "torch.mul(x, y)", lambda s: {"x": random(*s.matrix), "y": random(*s.matrix)}),
    ("add_", "x.add_(y)", lambda s: {"x": random(*s.matrix), "y": random(*s.matrix)}),
    ("relu", "torch.relu(x)", lambda s: {"x": random(*s.matrix)}),
    ("gelu", "torch.nn.functional.gelu(x)", lambda s: {"x": random(*s.matrix)}),
    ("mm", "torch.mm(x, y)", lambda s: {"x": random(*s.square), "y": random(*s.square)}),
    ("bmm", "torch.bmm(x, y)", lambda s: {"x": random(*s.batch), "y": random(*s.batch)}),
    (
        "addmm",
        "torch.addmm(b, x, y)",
        lambda s: {"b": random(s.square[1]), "x": random(*s.square), "y": random(*s.square)},
    ),
    (
        "linear",
        "torch.nn.functional.linear(x, w, b)",
        lambda s: {"x": random(*s.square), "w": random(*s.square), "b": random(s.square[0])},
    ),
    (
        "conv2d",
        "torch.nn.functional.conv2d(x, w, b, padding=1)",
        lambda s: {"x": random(*s.image), "w": random(*s.filters), "b": random(s.filters[0])},
    ),
    ("softmax", "torch.softmax(x, -1)", lambda s: {"x": random(*s.matrix)}),
    (
        "layer_norm",
        "torch.nn.functional.layer_norm(x, b.shape, w, b)",
        lambda s: {"x": random(*s.matrix), "w": random(s.matrix[1]), "b": random(s.matrix[1])},
    ),
    ("sum", "torch.sum(x)", lambda s: {"x": random(*s.matrix)}),
    ("mean", "torch.mean(x, -1)", lambda s: {"x": random(*s.matrix)}),
    ("cat", "torch.cat((x, y))", lambda s: {"x": random(*s.matrix), "y": random(*s.matrix)}),
    ("index_select", "torch.index_select(x, 0, i)", lambda s: {"x": random(*s.matrix), "i": indices(s)}),
    (
        "gather",
        "torch.gather(x, 1, i)",
        lambda s: {"x": random(*s.matrix), "i": torch.randint(0, s.matrix[1], s.matrix)},
    ),
    (
        "where",
        "torch.where(c, x, y)",
        lambda s: {"c": random(*s.matrix) > 0, "x": random(*s.matrix), "y": random(*s.matrix)},
    ),
    ("view", "x.view(-1)", lambda s: {"x": random(*s.matrix)}),
    ("transpose", "x.transpose(0, 1)", lambda s: {"x": random(*s.matrix)}),
    ("slice", "x[1:3]", lambda s: {"x": random(*s.matrix)}),
    ("clone", "x.clone()", lambda s: {"x": random(*s.matrix)}),
    ("copy_", "x.copy_(y)", lambda s: {"x": random(*s.matrix), "y": random(*s.matrix)}),
    ("embedding", "torch.nn.functional.embedding(i, x)", lambda s: {"x": random(*s.table), "i": indices(s)}),
]


def reject_wrong_results(statement: str, on_cpu: Operands, on_device: Operands) -> None:
    """Runs the statement once on both devices and raises AssertionError if the results differ."""
    results = [eval(statement, {"torch": torch, **operands}) for operands in (on_cpu, on_device)]
    torch.testing.assert_close(results[1].cpu(), results[0])


def measure(size: Size, device: torch.device, budget: Budget) -> list[Row]:
    """Times every op at one size, printing a line each."""
    rows = []
    for name, statement, operands in OPS:
        on_cpu = operands(size)
        on_device = {key: tensor.to(device, copy=True) for key, tensor in on_cpu.items()}
        reject_wrong_results(statement, on_cpu, on_device)
        row = alternate(
            name,
            Measured(statement, on_cpu, torch.device("cpu")),
            Measured(statement, on_device, device),
            budget,
        )
        print(
            f"{size.name:>5} {name:<13} cpu {row.cpu_seconds * 1e6:9.2f} us  {device.type} "
            f"{row.device_seconds * 1e6:9.2f} us  ratio {row.ratio:5.2f}",
            flush=True,
        )
        rows.append(row)
    return rows


def docs_body(rows: dict[str, list[Row]], geomeans: dict[str, float]) -> str:
    """Returns the section for docs/performance.md."""
    header = ["op", "tiny, cpu us", "tiny, loom us", "ratio", "1 MB, cpu us", "1 MB, loom us", "ratio"]
    table = [
        [f"`{tiny.name}`"]
        + [
            cell
            for row in (tiny, large)
            for cell in (
                f"{row.cpu_seconds * 1e6:.2f}",
                f"{row.device_seconds * 1e6:.2f}",
                f"{row.ratio:.2f}",
            )
        ]
        for tiny, large in zip(rows["tiny"], rows["1mb"], strict=True)
    ]
    summary = "; ".join(f"{name}: {geomeans[name]:.3f} (target {TARGETS[name]})" for name in TARGETS)
    return f"Geometric mean of loom / cpu. {summary}.\n\n{markdown_table(header, table)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parser(f"Time of {len(OPS)} ops, device against CPU.").parse_args(arguments)
    device = torch.device(options.device)
    torch.manual_seed(SEED)
    rows = {size.name: measure(size, device, QUICK if options.quick else FULL) for size in SIZES}
    geomeans = {name: geomean(row.ratio for row in found) for name, found in rows.items()}
    if options.json:
        json_rows = [{"size": name, **row.as_json()} for name, found in rows.items() for row in found]
        result = {f"geomean_{name}": value for name, value in geomeans.items()}
        write_json(options.json, {**result, "targets": TARGETS, "command": COMMAND, "rows": json_rows})
    if options.write_docs:
        write_docs("dispatch", "Cost of an op", docs_body(rows, geomeans), COMMAND)
    missed = [name for name, value in geomeans.items() if value > TARGETS[name]]
    for name in missed:
        print(f"missed: {name} {geomeans[name]:.3f}, target {TARGETS[name]}")
    print("geomean " + ", ".join(f"{name} {value:.3f}" for name, value in geomeans.items()), flush=True)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

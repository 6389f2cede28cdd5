"""What the first call of a shape costs on loom against the CPU: 20 ops, 30 shapes each, simulated clock on.

Each shape is called once, on one of the devices in turns, in CPU time of the
process. Prints a line per op, ratio = device / cpu of the medians, and last the geometric mean and the worst.
No time is read in between: a program that reads none pays for no estimate.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time_ns

import torch
from torch import Tensor

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import Row, geomean, parser, synchronizer, write_docs, write_json
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.cold"
TARGETS = {"geometric mean": 1.5, "worst": 2.5}
SHAPES, QUICK_SHAPES = 30, 4
WARM_UPS = 3
SEED = 0

# Made on the CPU for the sizes (rows, columns); lists are lists of tensors.
Operands = list[object]


@dataclass(frozen=True)
class Case:
    """An op of the benchmark: its name, the call, and its operands for rows and columns."""

    name: str
    call: Callable[..., object]
    operands: Callable[[int, int], Operands]


def _one(rows: int, columns: int) -> Operands:
    return [torch.randn(rows, columns)]


def _two(rows: int, columns: int) -> Operands:
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def _list(rows: int, columns: int) -> list[Tensor]:
    return [torch.randn(rows + place, columns) for place in range(10)]


def _indices(rows: int, columns: int) -> Operands:
    return [torch.randn(rows, columns), torch.randint(0, rows, (columns,))]


CASES = (
    Case("add", torch.add, _two),
    Case("mul_", lambda x, y: x.mul_(y), _two),
    Case("relu", torch.relu, _one),
    Case("gelu", torch.nn.functional.gelu, _one),
    Case("abs", torch.abs, _one),
    Case("to float64", lambda x: x.to(torch.float64), _one),
    Case("clone", torch.clone, _one),
    Case("mm", torch.mm, lambda m, n: [torch.randn(m, n), torch.randn(n, m)]),
    Case("bmm", torch.bmm, lambda m, n: [torch.randn(3, m, n), torch.randn(3, n, m)]),
    Case(
        "linear",
        torch.nn.functional.linear,
        lambda m, n: [torch.randn(m, n), torch.randn(m, n), torch.randn(m)],
    ),
    Case(
        "conv2d",
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
        lambda m, n: [torch.randn(1, 3, m, n), torch.randn(4, 3, 3, 3)],
    ),
    Case("softmax", lambda x: torch.softmax(x, -1), _one),
    Case(
        "layer_norm",
        lambda x, w: torch.nn.functional.layer_norm(x, w.shape, w),
        lambda m, n: [torch.randn(m, n), torch.randn(n)],
    ),
    Case("sum", lambda x: torch.sum(x, 0), _one),
    Case("mean", lambda x: torch.mean(x, -1), _one),
    Case("cat", lambda *tensors: torch.cat(tensors), _two),
    Case("index_select", lambda x, i: torch.index_select(x, 0, i), _indices),
    Case("where", lambda x, y: torch.where(x > y, x, y), _two),
    Case("_foreach_add", torch._foreach_add, lambda m, n: [_list(m, n), _list(m, n)]),
    Case(
        "_foreach_addcmul_",
        lambda x, y, z: torch._foreach_addcmul_(x, y, z, 0.5),
        lambda m, n: [_list(m, n), _list(m, n), _list(m, n)],
    ),
)


def _moved(operands: Operands, device: torch.device) -> Operands:
    """Returns copies of the operands on a device."""
    return [
        operand.to(device, copy=True) if isinstance(operand, Tensor) else _moved(operand, device)
        for operand in operands
        if isinstance(operand, Tensor | list)
    ]


def _agree(left: object, right: object) -> None:
    """Raises AssertionError if the results of the two devices differ."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        torch.testing.assert_close(right.cpu(), left)
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        for mine, theirs in zip(left, right, strict=True):
            _agree(mine, theirs)


def _nanoseconds(
    call: Callable[..., object], operands: Operands, wait: Callable[[], None]
) -> tuple[int, object]:
    wait()
    began = process_time_ns()
    result = call(*operands)
    spent = process_time_ns() - began
    wait()
    return spent, result


def measure(case: Case, shapes: int, device: torch.device) -> Row:
    """Calls an op once for each of some shapes on each device.

    Kernels of the CPU keep things by shape, for the device that calls first: no shape is timed on both.
    The devices have shapes that differ by a column, in turns.

    Args:
        case: the op.
        shapes: how many shapes of each device.
        device: what is compared with the CPU.
    """
    cpu = torch.device("cpu")
    seconds: dict[torch.device, list[float]] = {cpu: [], device: []}
    for number in range(WARM_UPS + shapes):
        devices = [cpu, device] if number % 2 else [device, cpu]
        calls = []
        for place, where in enumerate(devices):
            on_cpu = case.operands(5 + number, 8 + 2 * number + place)
            calls.append((where, on_cpu, _moved(on_cpu, where)))
        for where, on_cpu, operands in calls:
            spent, result = _nanoseconds(case.call, operands, synchronizer(where))
            if number >= WARM_UPS:
                seconds[where].append(spent * 1e-9)
            if where == device:
                _agree(case.call(*on_cpu), result)
    medians = [statistics.median(seconds[where]) for where in (cpu, device)]
    return Row(case.name, *medians, medians[1] / medians[0])


def docs_body(rows: Sequence[Row], figures: dict[str, float]) -> str:
    """Returns the section for docs/performance.md."""
    table = [
        [
            f"`{row.name}`",
            f"{row.cpu_seconds * 1e6:.1f}",
            f"{row.device_seconds * 1e6:.1f}",
            f"{row.ratio:.2f}",
        ]
        for row in rows
    ]
    summary = "; ".join(f"{name} {value:.2f} (target {TARGETS[name]})" for name, value in figures.items())
    return (
        f"Each of {SHAPES} shapes of an op is called once on either device; medians of CPU time. loom / cpu: "
        f"{summary}.\n\n{markdown_table(['op', 'cpu us', 'loom us', 'ratio'], table)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parser("Time of the first call of a shape, device against CPU.").parse_args(arguments)
    device = torch.device(options.device)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        rows.append(measure(case, QUICK_SHAPES if options.quick else SHAPES, device))
        print(
            f"{rows[-1].name:<18} cpu {rows[-1].cpu_seconds * 1e6:8.1f} us  {device.type} "
            f"{rows[-1].device_seconds * 1e6:8.1f} us  ratio {rows[-1].ratio:5.2f}",
            flush=True,
        )
    figures = {"geometric mean": geomean(row.ratio for row in rows), "worst": max(row.ratio for row in rows)}
    if options.json:
        found = {"rows": [row.as_json() for row in rows], **figures}
        write_json(options.json, {"command": COMMAND, "targets": TARGETS, **found})
    if options.write_docs:
        write_docs("cold", "First calls of a shape", docs_body(rows, figures), COMMAND)
    missed = [name for name, value in figures.items() if value > TARGETS[name]]
    for name in missed:
        print(f"missed: {name} {figures[name]:.2f}, target {TARGETS[name]}")
    print(", ".join(f"{name} {value:.2f}" for name, value in figures.items()), flush=True)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

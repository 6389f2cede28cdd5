"""The forward passes of `models.py`, compiled: each compiler's result for the device against the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._common import Budget, Measured, Row, alternate, table_of

# How large the ratio may be.
TARGETS = {
    "torch.compile": 1.0,
    'backend="loom", exact': 1.0,
    'backend="loom", float': 1.0,
    "torch_loom.compile, exact": 1.0,
    "torch_loom.compile, Bfp8_b": 1.2,
}
NOTE = """\
Forward passes without gradients, compiled for loom. `torch.compile` is compared with `torch.compile` on cpu,
what is exact with cpu eager, `float` and `Bfp8_b` with the faster of both."""

Function = Callable[[Tensor], Any]


def kind_of(case: str) -> str:
    """Returns which compiler a case is of."""
    return next(kind for kind in TARGETS if case.endswith(f", {kind}"))


def _makers(net: nn.Module, inputs: Tensor) -> dict[str, Callable[[], Function]]:
    import torch_loom

    formats = {"default_df_override": "Bfp8_b", "math_fidelity": "HiFi2"}
    return {
        "torch.compile": lambda: torch.compile(net),
        'backend="loom", exact': lambda: torch.compile(net, backend="loom"),
        'backend="loom", float': lambda: torch.compile(net, backend="loom", options={"numerics": "float"}),
        "torch_loom.compile, exact": lambda: torch_loom.compile(net, (inputs,), cache=False),
        "torch_loom.compile, Bfp8_b": lambda: torch_loom.compile(
            net, (inputs,), chip="wormhole_b0", cache=False, **formats
        ),
    }


def measure(
    name: str, make: Callable[[], nn.Module], given: Tensor, device: torch.device, budget: Budget
) -> list[Row]:
    """Times one model by each compiler, printing a line each."""
    cpu = torch.device("cpu")
    made = make().eval()
    theirs, ours = copy.deepcopy(made), made.to(device)
    inputs = given.to(device)
    run: Any = torch.no_grad()

    def timed(function: Function, x: Tensor, place: torch.device) -> Measured:
        return Measured("run(x)", {"run": run(function), "x": x}, place)

    torch.compiler.reset()
    references = {
        "eager": timed(theirs, given, cpu),
        "compiled": timed(torch.compile(theirs), given, cpu),
    }
    both = alternate("", references["eager"], references["compiled"], budget)
    best = references["compiled" if both.ratio < 1 else "eager"]
    rows = []
    for kind, compiled in _makers(ours, inputs).items():
        against = best
        if kind == "torch.compile":
            against = references["compiled"]
        elif kind.endswith("exact"):
            against = references["eager"]
        row = alternate(f"{name}, {kind}", against, timed(compiled(), inputs, device), budget)
        print(
            f"{row.name:<52} cpu {row.cpu_seconds * 1e3:8.3f} ms  {device.type} "
            f"{row.device_seconds * 1e3:8.3f} ms  ratio {row.ratio:5.2f} (target {TARGETS[kind]})",
            flush=True,
        )
        rows.append(row)
    torch.compiler.reset()
    return rows


def docs_body(rows: list[Row]) -> str:
    """Returns the part of the section of docs/performance.md."""
    return f"{NOTE}\n\n{table_of(rows, lambda name: TARGETS[kind_of(name)])}"

"""What a call of a small compiled model costs, each way beside eager on the CPU, in one process.

`torch.compile(backend="eager")` compiles nothing: it shows what Dynamo takes of each call.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import QUICK, Measured, Row, alternate, parser, report_rows, write_docs
from benchmarks.models import BUDGET, MODELS, SEED
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.compiled_calls"
MODEL = "MLP 64-128-10 32"

Made = Callable[[nn.Module, torch.Tensor], Callable[..., Any]]


def _compiled_whole(net: nn.Module, x: torch.Tensor) -> Callable[..., Any]:
    import torch_loom

    return torch_loom.compile(net, (x,), cache=False)


# What is called, and whether on the device; the first is what the others are compared with.
WAYS: dict[str, tuple[bool, Made]] = {
    "eager, on the CPU": (False, lambda net, x: net),
    "eager": (True, lambda net, x: net),
    '`torch.compile(backend="eager")`, on the CPU': (
        False,
        lambda net, x: torch.compile(net, backend="eager"),
    ),
    '`torch.compile(backend="loom")`': (True, lambda net, x: torch.compile(net, backend="loom")),
    "`torch.compile`, on the CPU": (False, lambda net, x: torch.compile(net)),
    "`torch.compile`": (True, lambda net, x: torch.compile(net)),
    '`torch.compile(mode="reduce-overhead")`': (
        True,
        lambda net, x: torch.compile(net, mode="reduce-overhead"),
    ),
    "`torch_loom.compile`": (True, _compiled_whole),
}


def measure(device: torch.device, quick: bool) -> Iterator[Row]:
    """Times each way, printing a line each."""
    torch.manual_seed(SEED)
    [model] = [model for model in MODELS if model.name == MODEL]
    made, inputs = model.make().eval(), model.inputs()
    cpu = torch.device("cpu")

    def timed(way: str) -> Measured:
        is_there, make = WAYS[way]
        place = device if is_there else cpu
        x = inputs.to(place)
        torch.compiler.reset()
        run = torch.no_grad()(make(copy.deepcopy(made).to(place), x))
        return Measured("run(x)", {"run": run, "x": x}, place)

    for way in WAYS:
        reference = timed(next(iter(WAYS)))
        row = alternate(way, reference, timed(way), QUICK if quick else BUDGET)
        print(
            f"{way:<48} {row.device_seconds * 1e6:7.1f} us  {row.ratio:5.2f} x eager on the CPU", flush=True
        )
        yield row
    torch.compiler.reset()


def _compiling(quick: bool) -> AbstractContextManager[None]:
    from torch._inductor import config

    # Compiling the header and starting processes take longer than the few kernels of a quick run.
    fast = {"compile_threads": 1, "cpp_cache_precompile_headers": False}
    patch: AbstractContextManager[None] = config.patch(fast if quick else {})
    return patch


def docs_body(rows: Sequence[Row]) -> str:
    """Returns the section for docs/performance.md."""
    note = (
        f"A forward pass of {MODEL} samples, without gradients. With the backend eager nothing is compiled: "
        "what such a call takes beyond eager is Dynamo's own, on every device."
    )
    lines = [[row.name, f"{row.device_seconds * 1e6:.1f}", f"{row.ratio:.2f}"] for row in rows]
    return f"{note}\n\n{markdown_table(['call', 'us', 'of eager on the CPU'], lines)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status. Targets of compiled models are in `models`."""
    options = parser("Calls of a small compiled model.").parse_args(arguments)
    with _compiling(options.quick):
        rows = list(measure(torch.device(options.device), options.quick))
    report_rows(options, rows, COMMAND)
    if options.write_docs:
        write_docs("calls", "Calls of a small compiled model", docs_body(rows), COMMAND)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

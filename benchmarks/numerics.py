"""Speed of conversions and of emulation against copying and float32, alternating in one process.

Conversions: the time of ``out.copy_(x)`` over that of ``quantize(x, fmt, out=out)``, 64 MB of float32;
larger is better. Models: a BERT-base-shaped encoder under Bfp8_b, HiFi2, over float32; smaller is better.
Microxcaling: its time over ours on the same tensors, where it can be imported; larger is better. Differences:
of every format's kernels, under each instruction set of this processor, from the exact reference
of the tests in integers, over 10 million elements.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import _microxcaling
from benchmarks._common import QUICK, Budget, Measured, alternate, parser, write_docs, write_json
from benchmarks._formats import differences
from tools.blocks import markdown_table
from torch_loom.numerics import DataFormat, MathFidelity, emulate, quantize

COMMAND = "python -m benchmarks.numerics"
BUDGET = Budget(rounds=21, block_seconds=2e-2)
MODEL_BUDGET = Budget(rounds=5, block_seconds=1e-1)
CPU = torch.device("cpu")
COPY_ELEMENTS = 16 * 2**20
EQUAL_ELEMENTS = 10_000_000
FORMATS = [fmt for fmt in DataFormat if fmt is not DataFormat.Invalid]
PARTS = ("conversions", "models", "microxcaling", "differences")
Result = dict[str, list[dict[str, Any]]]
HOW: dict[str, Any] = {"fidelity": MathFidelity.HiFi2, "accumulate": DataFormat.Float16_b}
MEMORY_TARGET = 1.5
TARGETS = {"forward": 1.2, "silicon forward": 10.0, "training step": 1.4}


def conversion_target(fmt: DataFormat) -> float:
    return 0.8 if fmt is DataFormat.Bfp8_b else 0.5


def conversions(budget: Budget) -> list[dict[str, object]]:
    """Share of the copy bandwidth that each format's conversion has."""
    torch.manual_seed(0)
    x = torch.randn(COPY_ELEMENTS)
    out = torch.empty_like(x)
    rows: list[dict[str, object]] = []
    for fmt in FORMATS:
        row = alternate(
            fmt.name,
            Measured("out.copy_(x)", {"x": x, "out": out}, CPU),
            Measured(
                "quantize(x, fmt, out=out)", {"x": x, "out": out, "fmt": fmt, "quantize": quantize}, CPU
            ),
            budget,
        )
        share, target = 1 / row.ratio, conversion_target(fmt)
        print(f"{fmt.name:<12} {share:5.2f} of the copy bandwidth (at least {target})", flush=True)
        rows.append({"name": fmt.name, "share": share, "target": target, "met": share >= target})
    return rows


class Bert(nn.Module):
    """The encoder of BERT-base: 12 layers of width 768, 12 heads, 3072 inside; [N, T, 768] in and out."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.encoder(tokens)


def forward(model: nn.Module, tokens: Tensor) -> Callable[[], Tensor]:
    return torch.no_grad()(lambda: model(tokens))


def training(model: nn.Module, tokens: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()

    return step


def encoder(*, quick: bool) -> tuple[Bert, Tensor]:
    torch.manual_seed(0)
    return Bert(2 if quick else 12), torch.randn(1 if quick else 8, 128, 768)


def models(budget: Budget, *, quick: bool) -> list[dict[str, object]]:
    """Time of the encoder under emulation over its float32 time."""
    exact, tokens = encoder(quick=quick)
    fast = emulate(copy.deepcopy(exact), DataFormat.Bfp8_b, **HOW)
    silicon = emulate(copy.deepcopy(exact), DataFormat.Bfp8_b, **HOW, mode="silicon")
    rows: list[dict[str, object]] = []
    for name, model, make in (
        ("forward", fast, forward),
        ("silicon forward", silicon, forward),
        ("training step", fast, training),
    ):
        for each in (exact, model):
            each.train(name == "training step")
        timed = [Measured("run()", {"run": make(each, tokens)}, CPU) for each in (exact, model)]
        row = alternate(name, timed[0], timed[1], budget)
        target = TARGETS[name]
        print(f"{name:<16} {row.ratio:6.2f} x float32 (at most {target})", flush=True)
        rows.append({"name": name, "ratio": row.ratio, "target": target, "met": row.ratio <= target})
    return rows


def peak_bytes(mode: str, layers: int) -> int:
    """The largest memory of a process that runs the encoder once on one thread."""
    code = (
        "import resource, torch; from benchmarks.numerics import HOW, Bert; "
        "from torch_loom.numerics import DataFormat, emulate; torch.set_num_threads(1); "
        f"model = Bert({layers}).eval(); mode = {mode!r}; "
        "model = model if not mode else emulate(model, DataFormat.Bfp8_b, mode=mode, **HOW); "
        "torch.no_grad().__enter__(); model(torch.randn(8, 128, 768)); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    root = Path(__file__).parent.parent
    told = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    return int(told.stdout.split()[-1])


def memory(*, quick: bool) -> list[dict[str, object]]:
    """Peak memory of the encoder under silicon over that under float32, each in a process of its own."""
    layers = 1 if quick else 12
    ratio = peak_bytes("silicon", layers) / peak_bytes("", layers)
    name = "silicon forward, peak memory"
    print(f"{name:<28} {ratio:.2f}", flush=True)
    return [{"name": name, "ratio": ratio, "target": MEMORY_TARGET, "met": ratio <= MEMORY_TARGET}]


def beside_microxcaling(budget: Budget, *, quick: bool) -> list[dict[str, object]]:
    """Times of microxcaling over ours; nothing where it cannot be imported."""
    peer = _microxcaling.found()
    if peer is None:
        return []
    rows = _microxcaling.conversions(peer, COPY_ELEMENTS // (64 if quick else 1), budget)
    exact, tokens = encoder(quick=quick)
    emulated = forward(emulate(copy.deepcopy(exact).eval(), DataFormat.Bfp8_b, **HOW), tokens)
    return [*rows, _microxcaling.forward(peer, exact, emulated, tokens, budget)]


def exactness(count: int) -> list[dict[str, object]]:
    """How many results of each format differ in any bit from the exact reference, or are counted wrongly."""
    rows: list[dict[str, object]] = []
    for fmt in FORMATS:
        row = differences(fmt, count)
        print(f"{fmt.name:<12} {row['differences']} of {row['elements']} elements differ", flush=True)
        rows.append(row)
    return rows


def docs_body(result: Result) -> str:
    """Returns the section for docs/performance.md."""
    converted = [
        [f"`{row['name']}`", f"{row['share']:.2f}", f"≥ {row['target']}"] for row in result["conversions"]
    ]
    timed = [[row["name"], f"{row['ratio']:.2f}", f"≤ {row['target']:g}"] for row in result["models"]]
    peers = [[row["name"], f"{row['ratio']:.1f}"] for row in result["microxcaling"]]
    exact = result["differences"]
    fewest, wrong = (
        pick(row[key] for row in exact) for pick, key in ((min, "elements"), (sum, "differences"))
    )
    beside = (
        "Time of microxcaling's CPU code, transcribed from its sources, over that of ours, on the same "
        "tensors:\n\n" + markdown_table(["case", "ratio"], peers)
        if peers
        else "microxcaling could not be imported where this was measured."
    )
    return "\n\n".join(
        (
            "Share of the bandwidth of a copy that a conversion of 64 MB of float32 has; larger is better:",
            markdown_table(["format", "share", "target"], converted),
            "A BERT-base-shaped encoder, 8 x 128 tokens, under Bfp8_b and HiFi2, over float32 on the CPU:",
            markdown_table(["pass", "ratio", "target"], timed),
            beside,
            f"Differences from the exact reference, at least {fewest:,} elements a format under "
            f"{', '.join(exact[0]['instruction_sets'])}: {wrong}.",
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options_of = parser("Speed of data formats and emulation.")
    options_of.add_argument("--only", choices=PARTS, help="one part; its result is not written to the docs")
    options = options_of.parse_args(arguments)
    if options.only and options.write_docs:
        options_of.error("--write-docs writes all parts: leave --only out")
    quick = options.quick
    budget, model_budget = (QUICK, QUICK) if quick else (BUDGET, MODEL_BUDGET)
    measure: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "conversions": lambda: conversions(budget),
        "models": lambda: models(model_budget, quick=quick) + memory(quick=quick),
        "microxcaling": lambda: beside_microxcaling(model_budget, quick=quick),
        "differences": lambda: exactness(EQUAL_ELEMENTS // (100 if quick else 1)),
    }
    result: Result = {part: measure[part]() for part in PARTS if options.only in (None, part)}
    if options.json:
        write_json(options.json, {"command": COMMAND, **result})
    if options.write_docs:
        write_docs("numerics", "Data formats and emulation", docs_body(result), COMMAND)
    missed = [f"{kind}: {row['name']}" for kind, rows in result.items() for row in rows if not row["met"]]
    for each in missed:
        print(f"missed: {each}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

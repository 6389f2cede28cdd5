"""What the cost model says of Triton kernels, beside public timings of Triton's tutorials on real cards.

Kernels of this project in the shape of the tutorials', with tiles that the tutorials list, are launched on a
device that executes nothing. The figures are those that users have published; each has its address.
Needs triton (`pip install torch-loom[triton]`).
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import parser, write_docs
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.kernel_clock"
TARGET = 0.3
_TRITON = "https://github.com/triton-lang/triton"
_OLMO = "https://github.com/allenai/OLMo/issues/258"
_FLASH = "https://github.com/pytorch/benchmark/commit/ff65cb675209d2308f7d27c6920af8a32de9aa90"
_FLASH_LONG = "https://github.com/pytorch/benchmark/commit/d5f0a12bfef945e88db862def32843fce22d5cd4"
# Tiles (m, n, k), warps and stages that the tutorial of products tries; the fastest one counts, as there.
_TILES = (
    ((128, 256, 64), 8, 3),
    ((128, 128, 32), 4, 4),
    ((128, 64, 32), 4, 4),
    ((64, 256, 32), 4, 4),
    ((128, 256, 128), 8, 3),
)


@dataclass(frozen=True)
class Figure:
    """A published figure: a kernel, the chip, its sizes, and TFLOP/s or GB/s that were reached."""

    kernel: str
    chip: str
    sizes: tuple[int, ...]
    reached: float
    source: str


def _figures() -> list[Figure]:
    found = [
        Figure("layer norm", "a100", (4096, n), reached, _OLMO)
        for n, reached in ((4096, 1129.9), (8192, 1379.7))
    ]
    # Smaller products were bound by the time of a launch from Python.
    for chip, issue, rows in (
        ("h100", 3672, ((2688, 433.4), (2816, 500.7), (2944, 471.4), (3072, 524.7))),
        ("a100", 3551, ((2816, 233.2), (2944, 251.7), (3072, 230.2), (3200, 244.3))),
    ):
        found += [Figure("product", chip, (n,), reached, f"{_TRITON}/issues/{issue}") for n, reached in rows]
    found += [
        Figure("attention", "h100", (batch, 16, length), reached, _FLASH)
        for batch, length, reached in (
            (32, 512, 328.9),
            (16, 1024, 389.7),
            (8, 2048, 433.7),
            (4, 4096, 458.4),
            (2, 8192, 470.7),
            (1, 16384, 476.8),
        )
    ]
    found += [
        Figure("attention", "h100", (128, 8, length), reached, _FLASH_LONG)
        for length, reached in ((1024, 353.4), (2048, 385.4), (4096, 404.7), (8192, 413.3))
    ]
    return found


FIGURES = _figures()


def amount(figure: Figure) -> float:
    """Return what a launch does: operations of products, bytes of others."""
    if figure.kernel == "layer norm":
        rows, columns = figure.sizes
        return 2.0 * rows * columns * 2
    if figure.kernel == "product":
        return 2.0 * figure.sizes[0] ** 3
    batch, heads, length = figure.sizes
    return 4.0 * batch * heads * length * length * 128


def _launches(figure: Figure) -> list[Any]:
    """Return functions that launch a figure's kernel, one for each choice of its tiles."""
    import torch

    kernels: Any = importlib.import_module("benchmarks._kernels")

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float16, device="cuda")

    if figure.kernel == "layer norm":
        rows, columns = figure.sizes
        x, out, weight, bias = empty(rows, columns), empty(rows, columns), empty(columns), empty(columns)
        return [
            lambda: kernels.layer_norm[(rows,)](
                x, weight, bias, out, columns, 1e-5, BLOCK=columns, num_warps=min(columns // 256, 8)
            )
        ]
    if figure.kernel == "product":
        (n,) = figure.sizes
        a, b, out = empty(n, n), empty(n, n), empty(n, n)

        def product(tile: tuple[int, int, int], warps: int, stages: int) -> Any:
            grid = (-(-n // tile[0]), -(-n // tile[1]))
            return lambda: kernels.product[grid](a, b, out, n, *tile, num_warps=warps, num_stages=stages)

        return [product(*each) for each in _TILES]
    batch, heads, length = figure.sizes
    q, k, v, out = (empty(batch * heads, length, 128) for _ in range(4))
    return [
        lambda: kernels.attention[(length // 128, batch * heads)](
            q, k, v, out, 0.1, length, WIDTH=128, M=128, N=64, CAUSAL=False, num_warps=8, num_stages=3
        )
    ]


def forecast(figure: Figure) -> float:
    """Return what the device's clock says, in the figure's unit."""
    import torch

    seconds = []
    for launch in _launches(figure):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(10):
            launch()
        end.record()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-4)
    return amount(figure) / min(seconds) / (1e9 if figure.kernel == "layer norm" else 1e12)


def forecasts(chip: str) -> list[float]:
    """Return the forecasts for a chip's figures, from a process whose device it is."""
    env = {
        **os.environ,
        "TORCH_LOOM_DEVICE_NAME": "cuda",
        "TORCH_LOOM_CHIP": chip,
        "TORCH_LOOM_DRIVER": "null",
        "TORCH_LOOM_CLOCK": "simulated",
    }
    run = [sys.executable, "-m", "benchmarks.kernel_clock", "--of-chip", chip]
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=600, check=True)
    return [float(share) for share in json.loads(done.stdout.splitlines()[-1])]


def docs_body(rows: Sequence[tuple[Figure, float]]) -> str:
    """Return the table of the figures, and how far off the forecasts are."""
    shown = []
    errors = []
    for figure, found in rows:
        unit = "GB/s" if figure.kernel == "layer norm" else "TFLOP/s"
        errors.append(found / figure.reached - 1)
        sizes = " x ".join(str(size) for size in figure.sizes)
        number = figure.source.rsplit("/", 1)[-1][:8]
        shown.append(
            [
                f"{figure.kernel}, {sizes}",
                figure.chip,
                f"{figure.reached:.0f} {unit}",
                f"{found:.0f}",
                f"{errors[-1]:+.0%}",
                f"[{number}]({figure.source})",
            ]
        )
    within = sum(abs(error) <= TARGET for error in errors)
    middle = statistics.median(abs(error) for error in errors)
    return (
        markdown_table(["kernel (float16)", "chip", "published", "here", "difference", "source"], shown)
        + f"\n\nWithin {TARGET:.0%}: {within} of {len(errors)}; median error {middle:.0%}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(str(__doc__))
    options.add_argument("--of-chip", help="print the forecasts of one chip's figures")
    given = options.parse_args(arguments)
    if given.of_chip:
        print(json.dumps([forecast(each) for each in FIGURES if each.chip == given.of_chip]))
        return 0
    rows: list[tuple[Figure, float]] = []
    for chip in sorted({figure.chip for figure in FIGURES}):
        figures = [figure for figure in FIGURES if figure.chip == chip]
        rows += zip(figures, forecasts(chip), strict=True)
    body = docs_body(rows)
    print(body)
    if given.write_docs:
        write_docs("kernel_clock", "Triton kernels: the clock against public timings", body, COMMAND)
    return 0


if __name__ == "__main__":
    sys.exit(main())

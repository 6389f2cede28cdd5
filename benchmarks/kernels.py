"""Triton kernels compiled for the host, against the CPU's own ops: one thread, both in one process.

Then the same kernels without their checks of addresses, and with two threads. Each kernel's result is
compared first. A launch is timed without its kernel's work, beside what Triton itself takes: the same launch
with a launcher that does nothing. Needs triton (`pip install torch-loom[triton]`).
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before torch: the devices are CUDA's, as for every program with kernels.
os.environ.setdefault("TORCH_LOOM_DEVICE_NAME", "cuda")

import torch
from torch.nn import functional

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._common import FULL, QUICK, Budget, Measured, Row, alternate, parser, write_docs, write_json
from tools.blocks import markdown_table

COMMAND = "python -m benchmarks.kernels"
# How many times as long as the CPU's own op a kernel may take.
TARGETS = {
    "vector add, 984,320 float32": 1.2,
    "softmax, 1823 x 781 float32": 1.5,
    "layer norm, 1151 x 8192 float16": 1.5,
    "causal attention, 1 x 4 x 1024 x 64 float16": 0.7,
    "product, 512 x 512 x 512 float16": 1.5,
}
LAUNCH_US = 10.0
COMPILE_S, CACHED_MS = 0.6, 5.0
# How many times as long a kernel takes with its checks; how many times as fast two threads are.
CHECKED, TWO_THREADS = 1.1, 1.8
# What tests an address in torch_loom/kernels/emission/cpp/kernel.h.
_TESTS = r"(inline bool (?:is_in|holds)\([^)]*\) \{\n)"


def cases() -> dict[str, tuple[Callable[[], Any], Callable[[], Any], Any, float]]:
    """Returns for each case the kernel, the CPU's op, where the kernel's result is, and the tolerance."""
    kernels: Any = importlib.import_module("benchmarks._kernels")
    torch.manual_seed(0)
    x, y = torch.randn(984_320), torch.randn(984_320)
    rows = torch.randn(1823, 781)
    wide, weight, bias = torch.randn(1151, 8192).half(), torch.randn(8192).half(), torch.randn(8192).half()
    q, k, v = (torch.randn(1, 4, 1024, 64).half() for _ in range(3))
    a, b = torch.randn(512, 512).half(), torch.randn(512, 512).half()
    on = [each.cuda() for each in (x, y, rows, wide, weight, bias, q, k, v, a, b)]
    gx, gy, grows, gwide, gweight, gbias, gq, gk, gv, ga, gb = on
    outs = [torch.empty_like(each) for each in (gx, grows, gwide, gq, ga)]
    out = [torch.empty_like(each) for each in (x, rows)]
    wa, wb, wout = a.float(), b.float(), torch.empty(512, 512)

    def product() -> Any:
        return kernels.product[(4, 2)](ga, gb, outs[4], 512, M=128, N=256, K=64)

    return dict(
        zip(
            TARGETS,
            [
                (
                    lambda: kernels.add[(962,)](gx, gy, outs[0], x.numel(), BLOCK=1024),
                    lambda: torch.add(x, y, out=out[0]),
                    outs[0],
                    0,
                ),
                (
                    lambda: kernels.softmax[(1823,)](outs[1], grows, 781, BLOCK=1024),
                    lambda: torch.softmax(rows, 1, out=out[1]),
                    outs[1],
                    1e-6,
                ),
                (
                    lambda: kernels.layer_norm[(1151,)](
                        gwide, gweight, gbias, outs[2], 8192, 1e-5, BLOCK=8192
                    ),
                    lambda: functional.layer_norm(wide, (8192,), weight, bias),
                    outs[2],
                    2e-2,
                ),
                (
                    lambda: kernels.attention[(8, 4)](
                        gq, gk, gv, outs[3], 0.125, 1024, WIDTH=64, M=128, N=64
                    ),
                    lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
                    outs[3],
                    2e-2,
                ),
                (product, lambda: torch.mm(wa, wb, out=wout), outs[4], 0.2),
            ],
            strict=True,
        )
    )


def measure(budget: Budget) -> list[Row]:
    """Compares results, then times each kernel and the CPU's op in turns."""
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    rows = []
    for name, (kernel, op, result, tolerance) in cases().items():
        kernel()
        expected = op()
        torch.testing.assert_close(result.cpu().float(), expected.float(), atol=tolerance, rtol=tolerance)
        measured = Measured("run()", {"run": op}, cpu), Measured("run()", {"run": kernel}, cuda)
        rows.append(alternate(name, *measured, budget))
        print(
            f"{name}: {rows[-1].device_seconds * 1e3:.3f} ms, cpu {rows[-1].cpu_seconds * 1e3:.3f} ms",
            flush=True,
        )
    return rows


@dataclass(frozen=True)
class Launch:
    """A launch of a compiled kernel, without Triton's part of it.

    Attributes:
        loaded: the kernel.
        given: the device, the grid and the arguments.
    """

    loaded: Any
    given: tuple[Any, ...]

    def __call__(self) -> None:
        self.loaded.kernel.launch(*self.given)

    def without_checks(self) -> Launch:
        """Returns the same launch of the kernel without what tests its addresses."""
        library: Any = importlib.import_module("torch_loom.kernels.triton.library")
        text, count = re.subn(_TESTS, r"\1  return true;\n", self.loaded.text)
        assert count == 2, "what tests addresses has another name"
        return Launch(library.load(self.loaded.name, text), self.given)


def launch_of(kernel: Callable[[], Any]) -> Launch:
    """Returns what a call of a Triton kernel launches."""
    compiled = kernel()
    loaded, taken = compiled.function, []

    class Taking:
        kernel: Any

        @staticmethod
        def launch(*given: Any) -> None:
            taken.append(given)

    Taking.kernel = Taking
    compiled.function = Taking
    kernel()
    compiled.function = loaded
    (given,) = taken
    return Launch(loaded, given)


class OnThreads(Measured):
    """A launch on some threads of the host."""

    def __init__(self, launch: Launch, threads: int) -> None:
        super().__init__("run()", {"run": launch}, torch.device("cuda"))
        self._threads = threads

    def block(self) -> float:
        """Runs one block as :meth:`Measured.block` does, once the threads have begun."""
        torch.set_num_threads(self._threads)
        try:
            self.timer.timeit(1)
            return super().block()
        finally:
            torch.set_num_threads(1)


def measure_checks_and_threads(budget: Budget) -> tuple[list[Row], list[Row]]:
    """Times each kernel with its checks beside the same without them, and on one thread beside two."""
    checked, threads = [], []
    for name, (kernel, *_) in cases().items():
        launch = launch_of(kernel)
        bare = launch.without_checks()
        checked.append(alternate(name, OnThreads(bare, 1), OnThreads(launch, 1), budget))
        threads.append(alternate(name, OnThreads(launch, 2), OnThreads(launch, 1), budget))
        print(
            f"{name}: {checked[-1].ratio:.3f} x with checks, two threads {threads[-1].ratio:.2f} x as fast",
            flush=True,
        )
    return checked, threads


def launch_us(budget: Budget) -> tuple[float, float]:
    """Returns microseconds of a launch, and of Triton's own part of it."""
    kernels: Any = importlib.import_module("benchmarks._kernels")
    x = torch.empty(1, device="cuda")
    launch = kernels.nothing[(1,)]
    compiled = launch(x)
    cuda = torch.device("cuda")
    whole, own = (Measured("run(x)", {"run": launch, "x": x}, cuda) for _ in range(2))
    whole.fit(budget.block_seconds)
    own.runs = whole.runs
    real = compiled._run
    wholes, owns = [], []
    for _ in range(budget.rounds):
        wholes.append(whole.block())
        compiled._run = lambda *arguments: None
        owns.append(own.block())
        compiled._run = real
    return sorted(wholes)[len(wholes) // 2] * 1e6, sorted(owns)[len(owns) // 2] * 1e6


def first_launch_seconds(folder: str) -> dict[str, float]:
    """Returns how long the first launch of each kernel takes in a new process, without the kernel's run."""
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TORCH_LOOM_KERNEL_CACHE": f"{folder}/loom",
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kernels", "--first-launches"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: float(seconds) for name, seconds in (line.split("\t") for line in done.stdout.splitlines())}


def first_launches() -> None:
    """Prints how many seconds longer the first launch of each kernel takes than the second."""
    kernels: Any = importlib.import_module("benchmarks._kernels")
    x = torch.empty(1, device="cuda")
    kernels.nothing[(1,)](x)
    for name, (kernel, _, result, _) in cases().items():
        result.zero_()  # the host's pages of a result are the first run's, whoever writes them
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            kernel()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        print(f"{name}\t{seconds[0] - seconds[1]}")


def docs_body(
    rows: list[Row],
    checked: list[Row],
    threads: list[Row],
    launch: tuple[float, float],
    first: dict[str, float],
    again: dict[str, float],
) -> str:
    """Returns the section for docs/performance.md."""
    beside = [
        [each.name, f"{each.ratio:.2f}", str(CHECKED), f"{two.ratio:.2f}", str(TWO_THREADS)]
        for each, two in zip(checked, threads, strict=True)
    ]
    beside_header = ["kernel", "with checks", "at most", "two threads", "at least"]
    lines = [
        [
            row.name,
            f"{row.cpu_seconds * 1e3:.3f}",
            f"{row.device_seconds * 1e3:.3f}",
            f"{row.ratio:.2f}",
            str(TARGETS[row.name]),
            f"{first[row.name]:.2f}",
            f"{again[row.name] * 1e3:.0f}",
        ]
        for row in rows
    ]
    header = ["kernel", "cpu ms", "kernel ms", "ratio", "at most", "first launch s", "from the caches ms"]
    return (
        "Triton's kernels compiled for the host, one thread, medians; the product is compared with torch's "
        "of float32. The first launch compiles; from the caches it is a process that finds both Triton's and "
        "torch-loom's. The kernel's run is not counted in either.\n\n"
        + markdown_table(header, lines)
        + "\nHow many times as long a kernel takes with its checks of addresses as the same kernel without "
        "them, and how many times as fast it is on two threads as on one:\n\n"
        + markdown_table(beside_header, beside)
        + f"\nA launch takes {launch[0]:.1f} us, of which {launch[1]:.1f} us are Triton's own: with a "
        f"launcher that does nothing. Target: {LAUNCH_US:.0f} us, or Triton's share and 3 us."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    options_of = parser("Triton's kernels against the CPU's ops.")
    options_of.add_argument(
        "--first-launches", action="store_true", help="print the seconds of first launches"
    )
    options = options_of.parse_args(arguments)
    torch.set_num_threads(1)
    if options.first_launches:
        first_launches()
        return 0
    budget = QUICK if options.quick else FULL
    rows = measure(budget)
    checked, threads = measure_checks_and_threads(budget)
    launch = launch_us(budget)
    print(f"launch {launch[0]:.1f} us, Triton's own {launch[1]:.1f} us", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        first = first_launch_seconds(folder)
        again = first_launch_seconds(folder)
    for name in first:
        print(
            f"{name}: first launch {first[name]:.2f} s, from the caches {again[name] * 1e3:.0f} ms",
            flush=True,
        )
    missed = [row.name for row in rows if row.ratio > TARGETS[row.name]]
    missed += [f"checks of {row.name}" for row in checked if row.ratio > CHECKED]
    missed += [f"two threads of {row.name}" for row in threads if row.ratio < TWO_THREADS]
    missed += ["launch"] if launch[0] > max(LAUNCH_US, launch[1] + 3) else []
    if options.json:
        write_json(
            options.json,
            {
                "command": COMMAND,
                "rows": [row.as_json() for row in rows],
                "checked_ratios": {row.name: row.ratio for row in checked},
                "two_threads_speedups": {row.name: row.ratio for row in threads},
                "launch_us": launch[0],
                "triton_launch_us": launch[1],
                "first_launch_seconds": first,
                "cached_launch_seconds": again,
            },
        )
    if options.write_docs:
        body = docs_body(rows, checked, threads, launch, first, again)
        write_docs("kernels", "Kernels of a program's own", body, COMMAND)
    for name in missed:
        print(f"missed: {name}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

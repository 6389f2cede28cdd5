"""Forecasts of model steps side by side: this package's dry runs, and what PyTorch brings along.

    python -m benchmarks.forecasters --chip h200 PEAKS.json MODELS.json

PEAKS.json as of benchmarks.memory_error, MODELS.json as of benchmarks.clock_error; the training steps that
are in both are the cases. ``torch.distributed._tools`` runs under FakeTensorMode on the host: MemTracker
forecasts memory, RuntimeEstimator time. The latter asks a GPU for its peaks; it is given those of the chip's
description. Needs transformers.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks import clock_error, hf_models, memory_error
from benchmarks._common import plain_parser, write_docs
from tools.blocks import markdown_table
from torch_loom import chips
from torch_loom.chips import rates as chip_rates

COMMAND = "python -m benchmarks.forecasters"
CASES = 10
# FakeGPU is on no package index. Version 1.5.5, its static forecast of the second step, PyTorch 2.13.
FAKEGPU_MIB = {
    "gpt2 float32 train [1, 128]": 2193,
    "gpt2 float32 train [8, 512]": 11593,
    "gpt2 bfloat16 train [1, 128]": 1097,
    "gpt2 bfloat16 train [8, 512]": 8918,
}


@dataclass(frozen=True)
class Case:
    """A training step: bytes and milliseconds that were recorded, and those that each forecasts."""

    name: str
    memory: int
    kernel_ms: float
    own_memory: int
    tracked_memory: int | None  # None: it fails
    own_ms: float
    estimated_ms: float | None

    @property
    def fakegpu_memory(self) -> int | None:
        """Bytes of FakeGPU's forecast, where there is one."""
        found = FAKEGPU_MIB.get(self.name)
        return None if found is None else found * memory_error.MIB


def _fake(row: dict[str, Any]) -> tuple[torch.nn.Module, torch.optim.Optimizer, dict[str, Any]]:
    """Return model, optimizer and batch of a row, within FakeTensorMode, where no module can be moved."""
    import transformers

    dtype = getattr(torch, row["dtype"])
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    # It draws until values lie within bounds, and fake tensors have none.
    unbounded = mock.patch("torch.nn.init._no_grad_trunc_normal_", lambda tensor, *_args, **_kwargs: tensor)
    try:
        with unbounded:
            model = hf_models.MODELS[row["model"]](transformers).train()
    finally:
        torch.set_default_dtype(before)
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, hf_models.inputs(row["model"], row["shape"], dtype, "cpu")


def tracked_memory(row: dict[str, Any]) -> int:
    """Return MemTracker's peak in bytes of as many steps as were recorded."""
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        model, optimizer, batch = _fake(row)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in row["steps"]:
                tracker.reset_mod_stats()  # it takes one call of a module at a time
                hf_models.step(model, batch, optimizer)
        peak: Any = tracker.get_tracker_snapshot("peak")
    return int(peak[torch.device("cpu")]["Total"])


def estimated_ms(chip: chips.Chip, row: dict[str, Any]) -> float:
    """Return RuntimeEstimator's milliseconds of a step, from the chip's peaks."""
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator

    peaks = chip_rates.rates(chip).flops_per_ns

    def tflops(of: torch.dtype) -> float:
        return peaks[str(of).removeprefix("torch.")] / 1e3

    estimation = "torch.utils._runtime_estimation."
    with (
        FakeTensorMode(),
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch(estimation + "get_device_tflops", tflops),
        mock.patch(estimation + "get_gpu_dram_gbps", return_value=chip.dram_gbps),
    ):
        model, optimizer, batch = _fake(row)
        hf_models.step(model, batch, optimizer)
        # It prints its result.
        with contextlib.redirect_stdout(None), RuntimeEstimator()("operator-level-cost-model") as estimator:
            hf_models.step(model, batch, optimizer)
    return float(estimator.total_runtime)


def own_ms(chip: chips.Chip, row: dict[str, Any]) -> float:
    """Return this package's milliseconds of a step."""
    model = chip_rates.model(chip)
    kernels = clock_error.step_kernels(row)
    return sum(model.time(kernel).total_ns * count for kernel, count in kernels.items()) / 1e6


def _or_none(name: str, forecast: Callable[[], float]) -> Any:
    """Return a forecast; None where a forecaster of PyTorch's fails, which it says."""
    try:
        return forecast()
    except Exception as error:
        print(f"{name} fails: {type(error).__name__}: {str(error).partition(chr(10))[0]}", flush=True)
        return None


def compared(chip_name: str, peak: dict[str, Any], timed: dict[str, Any]) -> Case:
    """Return a case with all forecasts."""
    chip = chips.load(chip_name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Case(
            name=f"{peak['model']} {peak['dtype']} train {peak['shape']}",
            memory=peak["steps"][-1][0],
            kernel_ms=timed["kernel_ms"],
            own_memory=memory_error.planned_steps(chip_name, peak)[-1].allocated,
            tracked_memory=_or_none("MemTracker", lambda: tracked_memory(peak)),
            own_ms=own_ms(chip, timed),
            estimated_ms=_or_none("RuntimeEstimator", lambda: estimated_ms(chip, timed)),
        )


def pairs(peaks: Sequence[dict[str, Any]], timed: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the training steps that are in both files, as (row of memory, row of time)."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["model"], row["dtype"], row["mode"], *row["shape"]

    by_key = {key(row): row for row in timed}
    return [(row, by_key[key(row)]) for row in peaks if row["mode"] == "train" and key(row) in by_key]


def _error(forecast: float | None, recorded: float) -> str:
    return "none" if forecast is None else f"{forecast / recorded - 1.0:+.1%}"


def _range(pairs_: Sequence[tuple[float | None, float]]) -> str:
    errors = [forecast / recorded - 1.0 for forecast, recorded in pairs_ if forecast is not None]
    if not errors:
        return "no case"
    return f"mean {np.abs(errors).mean():.1%}, from {min(errors):+.1%} to {max(errors):+.1%}"


def docs_body(found: Sequence[Case]) -> str:
    """Return the section for docs/performance.md."""
    memory = [
        [
            case.name,
            f"{case.memory / memory_error.MIB:,.0f} MiB",
            _error(case.own_memory, case.memory),
            _error(case.tracked_memory, case.memory),
            _error(case.fakegpu_memory, case.memory),
            f"{case.kernel_ms:.2f} ms",
            _error(case.own_ms, case.kernel_ms),
            _error(case.estimated_ms, case.kernel_ms),
        ]
        for case in found
    ]
    header = ["training step", "peak", "loom", "MemTracker", "FakeGPU", "time", "loom", "Estimator"]
    return (
        "How far forecasts without a GPU are from what an NVIDIA H200 reported: peak of allocated memory, "
        "and time of the kernels of a step. MemTracker and RuntimeEstimator are those of "
        "`torch.distributed._tools` under "
        "FakeTensorMode; RuntimeEstimator is given the chip's peaks and leaves optimizers' ops without "
        "arithmetic at the bandwidth of memory. *None*: it fails at the model, or there is no figure. "
        "FakeGPU is on no package index: its static forecasts of the gpt2 steps were measured with version "
        "1.5.5 and are not measured by this command.\n\n"
        + markdown_table(header, memory)
        + "\n\n"
        + "\n".join(f"- {line}" for line in summary(found))
    )


def summary(found: Sequence[Case]) -> list[str]:
    """Return a line for each forecaster."""
    return [
        f"memory, loom: {_range([(case.own_memory, case.memory) for case in found])}",
        f"memory, MemTracker: {_range([(case.tracked_memory, case.memory) for case in found])}",
        f"memory, FakeGPU: {_range([(case.fakegpu_memory, case.memory) for case in found])}",
        f"time, loom: {_range([(case.own_ms, case.kernel_ms) for case in found])}",
        f"time, RuntimeEstimator: {_range([(case.estimated_ms, case.kernel_ms) for case in found])}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 2 if a file cannot be used."""
    parser = plain_parser(__doc__)
    parser.add_argument("peaks", type=Path, help="recorded peaks of model steps")
    parser.add_argument("models", type=Path, help="recorded times of model steps")
    parser.add_argument("--cases", type=int, default=CASES, help="at most so many")
    options = parser.parse_args(arguments)
    try:
        both = pairs(memory_error.read(options.peaks), clock_error.read_steps(options.models))
    except (memory_error.DataError, clock_error.DataError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    if not both or options.cases < 1:
        parser.error("no training step is in both files")
    found = []
    for peak, timed in both[: options.cases]:
        case = compared(options.chip, peak, timed)
        found.append(case)
        print(
            f"{case.name:36} memory: loom {_error(case.own_memory, case.memory)}, MemTracker "
            f"{_error(case.tracked_memory, case.memory)}; time: loom {_error(case.own_ms, case.kernel_ms)}, "
            f"RuntimeEstimator {_error(case.estimated_ms, case.kernel_ms)}",
            flush=True,
        )
    if options.write_docs:
        write_docs("forecasters", "Forecasters side by side", docs_body(found), COMMAND)
    print("\n".join(summary(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a run on a TTDevice in the formats of its chip costs beside the module in float32 on the CPU.

Both take turns in one process. ``first`` is the time of the first call of ``run_inference`` in a process of
its own, which compiles, over that of the next; ``kept`` that of the first call of the same model on a second
device of that process. Each stands over later calls, too, which replay what the second has captured. All are
medians of several processes.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target

MODELS = ("BERT-base", "ViT-base", "ResNet-50")
TURNS = 7
STARTS = 5


class _First(nn.Module):
    """A model of transformers as a function of one tensor to its first result."""

    def __init__(self, name: str, **config: Any) -> None:
        super().__init__()
        import transformers

        cls = getattr(transformers, name)
        self.model = cls(cls.config_class(**config))

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x)[0]


def models(quick: bool) -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Return each model with an input; ``quick``: of few layers."""
    few: dict[str, Any] = {"num_hidden_layers": 1} if quick else {}
    torch.manual_seed(0)
    words = torch.randint(0, 30000, (1, 128))
    images = torch.rand(1, 3, 224, 224)
    return {
        "BERT-base": (_First("BertModel", **few).eval(), words),
        "ViT-base": (_First("ViTModel", **few).eval(), images),
        "ResNet-50": (_First("ResNetModel", **({"depths": [1, 1, 1, 1]} if quick else {})).eval(), images),
    }


def _seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def ratios(model: nn.Module, x: torch.Tensor) -> list[float]:
    """Return the time of each run over the CPU's."""
    run = _started(model, x)
    run(), run()  # captured at the second
    found = []
    with torch.no_grad():
        model(x)
        for _ in range(TURNS):
            own = _seconds(lambda: model(x))
            found.append(_seconds(run) / own)
    return found


def starts(name: str, quick: bool, threads: int) -> list[float]:
    """Return the time of a process's first run over the next and over later ones: of each of `STARTED`."""
    torch.set_num_threads(threads)
    model, x = models(quick)[name]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_LOOM_COMPILE_CACHE"] = folder
        for _ in ("empty", "kept"):
            run = _started(model, x)
            first, following = _seconds(run), _seconds(run)
            found += [first / following, first / statistics.median(_seconds(run) for _ in range(3))]
    return found


def _started(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Return a run of a model on a device of its own, the program's only one."""
    from torch_loom import pybuda

    pybuda.pybuda_reset()
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float16_b)
    chip = pybuda.BackendDevice.Wormhole_B0
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("model", model), arch=chip)

    def run() -> None:
        device.push_to_inputs(x)
        pybuda.run_inference(_sequential=True).get(timeout=600)

    return run


_FIRST = "the first call of a process, which compiles"
_KEPT = "the first call on a second device, with what the first left in the cache"
# What `starts` returns, in this order: a target, and what it is.
STARTED: dict[str, tuple[float | None, str]] = {
    "first": (3, f"{_FIRST}, over the next"),
    "first over replayed": (None, f"{_FIRST}, over later ones, which replay"),
    "kept": (3, f"{_KEPT}, over the next"),
    "kept over replayed": (None, f"{_KEPT}, over later ones, which replay"),
}

SUBJECT = Subject(
    "buda_runs",
    "Runs on a TTDevice",
    "What a run on a TTDevice costs.",
    {
        **{
            name: Target(1.3, "x", f"{name}, one sample, Float16_b, over the module on the CPU in float32")
            for name in MODELS
        },
        **{
            f"{name}, {figure}": Target(limit, "x", f"{name}, {what}")
            for name in MODELS
            for figure, (limit, what) in STARTED.items()
        },
    },
)


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Measures the figures, printing a line each."""
    figures = []
    for name, (model, x) in models(quick).items():
        figures.append(SUBJECT.show(Figure.of(name, ratios(model, x))))
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawning, max_tasks_per_child=1) as processes:
        for name in models(quick):
            tries = [(name, quick, torch.get_num_threads())] * (1 if quick else STARTS)
            found = list(processes.map(starts, *zip(*tries, strict=True)))
            for figure, values in zip(STARTED, zip(*found, strict=True), strict=True):
                figures.append(SUBJECT.show(Figure.of(f"{name}, {figure}", values)))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(measure, arguments)


if __name__ == "__main__":
    sys.exit(main())

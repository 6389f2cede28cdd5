"""What a run on a TTDevice in the formats of its chip costs beside the module in float32 on the CPU.

Both take turns in one process. ``first`` is the time of the first call of ``run_inference``, which compiles,
over that of the next; ``kept`` that of the first call where the cache of compiled models has it.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target

TURNS = 7


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


def ratios(model: nn.Module, x: torch.Tensor, folder: Path) -> tuple[list[float], float, float]:
    """Return the time of each run over the CPU's, and those of the first over the median of the others.

    The first with an empty cache of compiled models, ``folder``, and the first that finds the model there.
    """
    os.environ["TORCH_LOOM_COMPILE_CACHE"] = str(folder)
    run = _started(model, x)
    first = _seconds(run)
    run = _started(model, x)
    kept = _seconds(run)
    run(), run()  # captured at the second
    found, runs = [], []
    with torch.no_grad():
        model(x)
        for _ in range(TURNS):
            own = _seconds(lambda: model(x))
            runs.append(_seconds(run))
            found.append(runs[-1] / own)
    next_seconds = statistics.median(runs)
    return found, first / next_seconds, kept / next_seconds


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


SUBJECT = Subject(
    "buda_runs",
    "Runs on a TTDevice",
    "What a run on a TTDevice costs.",
    {
        **{
            name: Target(1.3, "x", f"{name}, one sample, Float16_b, over the module on the CPU in float32")
            for name in ("BERT-base", "ViT-base", "ResNet-50")
        },
        "first": Target(3, "x", "the first call, which compiles, over the next, at worst"),
        "kept": Target(3, "x", "the first call of a model that the cache has, over the next, at worst"),
    },
)


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Measures the figures, printing a line each."""
    figures, firsts, kepts = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, x) in models(quick).items():
            found, first, kept = ratios(model, x, Path(folder))
            figures.append(SUBJECT.show(Figure.of(name, found)))
            firsts.append(first)
            kepts.append(kept)
    worst = {"first": max(firsts), "kept": max(kepts)}
    return [*figures, *(SUBJECT.show(Figure(name, value, value)) for name, value in worst.items())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(measure, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Predicted rates of Tenstorrent's boards beside published ones, and what PyBuda reached of a chip.

A prediction is what ``loom compile`` prints for the same options: samples a second from the host and back.
No published figure has a part in it. PyBuda's kernels were slower than the chip allows, and each took time of
its own: for each chip a factor and microseconds a kernel are fitted to half of its figures, and tested on the
others. A hash of stack, model and board says which half a figure is of.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target
from benchmarks.compile import Encoder
from benchmarks.published import BY_STACK
from tools.blocks import markdown_table

BATCH = 16
OPTIONS: Mapping[str, Any] = {"default_df_override": "Bfp8_b", "math_fidelity": "HiFi2"}
KEPT = Path(__file__).with_name("boards.json")
FITTED, ONE_CHIP = "PyBuda", ("gs_e150", "wh_n150")


def _transformer(name: str, **config: Any) -> nn.Module:
    import transformers

    cls = getattr(transformers, name)
    net: nn.Module = cls(cls.config_class(**config))
    return net


def _timm(name: str) -> nn.Module:
    import timm

    net: nn.Module = timm.create_model(name)
    return net


def _images() -> torch.Tensor:
    return torch.zeros(BATCH, 3, 224, 224)


def _words() -> torch.Tensor:
    return torch.zeros(BATCH, 384, dtype=torch.long)


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "BERT-large": (Encoder, _words),
    "BERT-base": (lambda: Encoder(12, 768, 12), _words),
    "ViT-base": (lambda: _transformer("ViTModel"), _images),
    "ResNet-50": (lambda: _transformer("ResNetModel"), _images),
    "MobileNetV1": (lambda: _transformer("MobileNetV1Model"), _images),
    "MobileNetV2": (lambda: _transformer("MobileNetV2Model"), _images),
    "MobileNetV3": (lambda: _timm("mobilenetv3_large_100"), _images),
    "VoVNet-39": (lambda: _timm("ese_vovnet39b"), _images),
    "Inception-v4": (lambda: _timm("inception_v4"), _images),
}
"""By the names of :mod:`benchmarks.published`; the last three are of the package timm."""


@dataclass(frozen=True)
class Compared:
    """A published rate and the prediction, samples a second, and the kernels of the plan."""

    stack: str
    model: str
    board: str
    published: float
    predicted: float
    kernels: int

    @property
    def is_fitted(self) -> bool:
        """Whether it is of the half that a stack's figures are fitted to."""
        text = f"{self.stack}/{self.model}/{self.board}"
        return hashlib.sha256(text.encode()).digest()[0] % 2 == 0


@dataclass(frozen=True)
class Reached:
    """How a stack's runs differ from a prediction: so many times its time, and a time for each kernel."""

    factor: float = 1.0
    kernel_us: float = 0.0

    def rate(self, one: Compared) -> float:
        """Return samples a second."""
        return 1e6 / (self.factor * 1e6 / one.predicted + self.kernel_us * one.kernels)


FACTORS = [number / 20 for number in range(20, 81)]
KERNEL_US = [number / 4 for number in range(61)]


def predicted(model: str, board: str) -> tuple[float, int]:
    """Return samples a second of a board, from the host and back, and the number of kernels."""
    import torch_loom

    make, inputs = MODELS[model]
    executable = torch_loom.compile(make().eval(), (inputs(),), device_config=board, **OPTIONS)
    kernels = sum(len(epoch["ops"]) for epoch in executable.plan["epochs"])
    return executable.end_to_end_samples_per_second, kernels


def compared() -> Iterator[Compared]:
    """Predict each figure, printing a line each; a model whose package is not installed is passed over."""
    known: dict[tuple[str, str], tuple[float, int]] = {}
    for stack, models in BY_STACK.items():
        for model, boards in models.items():
            for board, rate in boards.items():
                key = (model, board)
                if key not in known:
                    try:
                        known[key] = predicted(model, board)
                    except ImportError as error:
                        print(f"{model}: {error}", flush=True)
                        continue
                one = Compared(stack, model, board, rate, *known[key])
                print(
                    f"{stack}, {model}, {board}: published {rate:,.0f}, predicted {one.predicted:,.0f}",
                    flush=True,
                )
                yield one


def fit(found: Sequence[Compared]) -> Reached:
    """Return what comes closest to published rates, by the squares of their logarithms."""

    def error(reached: Reached) -> float:
        return sum(math.log(reached.rate(one) / one.published) ** 2 for one in found)

    return min(itertools.starmap(Reached, itertools.product(FACTORS, KERNEL_US)), key=error)


def fits(found: Sequence[Compared]) -> dict[str, Reached]:
    """Return by board of one chip what PyBuda reached of it."""
    return {
        board: fit([one for one in found if one.is_fitted and one.stack == FITTED and one.board == board])
        for board in ONE_CHIP
    }


def groups(found: Sequence[Compared]) -> dict[str, list[tuple[Compared, float]]]:
    """Return by group its figures and what is said of each, samples a second."""
    reached = fits(found)
    made: dict[str, list[tuple[Compared, float]]] = {name: [] for name in SUBJECT.targets}
    for one in found:
        if one.stack == FITTED and one.board in reached:
            name, rate = "fitted" if one.is_fitted else "tested", reached[one.board].rate(one)
        else:
            name, rate = ("two_chips" if one.stack == FITTED else "as_predicted"), one.predicted
        made[name].append((one, rate))
    return made


def _kept() -> list[Compared]:
    return [Compared(**one) for one in json.loads(KEPT.read_text(encoding="utf-8"))]


class _Subject(Subject):
    def docs_body(self, figures: Sequence[Figure]) -> str:
        found = _kept()
        rows = [
            [
                one.stack,
                one.model,
                f"`{one.board}`",
                f"{one.published:,.0f}",
                f"{one.predicted:,.0f}",
                f"{rate:,.0f}" if name in ("fitted", "tested") else "",
                f"`{name}`",
            ]
            for name, several in groups(found).items()
            for one, rate in several
        ]
        fitted = [
            [f"`{board}`", f"{one.factor:.2f}", f"{one.kernel_us:.2f}"] for board, one in fits(found).items()
        ]
        options = ", ".join(f"`{key}={value}`" for key, value in OPTIONS.items())
        note = (
            "Samples a second of whole boards (`benchmarks/published.py`). *Predicted* is what `loom compile "
            "MODEL --chip n150`, or another board, prints as *with the host* for "
            f"{options} and {BATCH} samples of input, to which nothing is fitted. What PyBuda reached of a "
            "chip is fitted to half of its figures: a factor of the predicted time, and a time for each "
            "kernel and sample."
        )
        head = ["stack", "model", "board", "published", "predicted", "as PyBuda reaches", "figure"]
        return "\n\n".join(
            [
                super().docs_body(figures),
                note,
                markdown_table(["board", "factor", "µs a kernel"], fitted),
                markdown_table(head, rows),
            ]
        )


_ERROR = "mean relative error, and the largest, of"
SUBJECT = _Subject(
    "boards",
    "Boards",
    "How predictions compare with published rates of Tenstorrent's boards.",
    {
        "fitted": Target(0.25, "", f"{_ERROR} PyBuda's figures of one chip, the half that is fitted"),
        "tested": Target(0.25, "", f"{_ERROR} the other half"),
        "as_predicted": Target(0.25, "", f"{_ERROR} predictions beside TT-NN's figures, nothing fitted"),
        "two_chips": Target(0.25, "", f"{_ERROR} predictions beside PyBuda's of two chips, nothing fitted"),
    },
)


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Predicts the figures, printing a line each; ``quick``: takes the predictions that were kept."""
    if not quick:
        found = [asdict(one) for one in compared()]
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return [
        SUBJECT.show(Figure(name, statistics.mean(values), max(values)))
        for name, several in groups(_kept()).items()
        if (values := [abs(rate / one.published - 1) for one, rate in several])
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return SUBJECT.run(measure, arguments)


if __name__ == "__main__":
    sys.exit(main())

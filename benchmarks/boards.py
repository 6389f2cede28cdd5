"""Predicted rates of Tenstorrent's boards beside published ones, and what PyBuda reached of its chips.

A prediction is what ``loom compile`` prints for the same options: samples a second from the host and back.
No published figure has a part in it. PyBuda's kernels were slower than the chip allows, and its epochs took
time. What an epoch takes to start is read off rates at two numbers of samples. A factor of the predicted time
and what an epoch adds to a sample, both by chip, and what two chips reach of twice one's rate, are fitted to
half of the figures and tested on the others. A hash of stack, model and board says which half a figure is of.
``--write-stacks`` makes what is said of one chip the product's.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
import sys
import tempfile
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
from benchmarks.published import BY_SAMPLES, FIGURES, PYBUDA, Grid, Published, Setting
from tools.blocks import markdown_table
from torch_loom.chips import stacks
from torch_loom.chips.stacks import Reached, Stack
from torch_loom.config.boards import DEVICE_CONFIGS

KEPT = Path(__file__).with_name("boards.json")


def _transformer(name: str, **config: Any) -> nn.Module:
    import transformers

    cls = getattr(transformers, name)
    net: nn.Module = cls(cls.config_class(**config))
    return net


def _timm(name: str) -> nn.Module:
    import timm

    net: nn.Module = timm.create_model(name)
    return net


def _images(samples: int) -> torch.Tensor:
    return torch.zeros(samples, 3, 224, 224)


def _words(samples: int) -> torch.Tensor:
    return torch.zeros(samples, 384, dtype=torch.long)


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
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
class Chip:
    """What is predicted of one chip: samples of a run, samples a second, epochs that a run starts."""

    name: str
    samples: int
    rate: float
    starts: float


@dataclass(frozen=True)
class Compared:
    """A published rate and the prediction of each chip."""

    figure: Published
    chip: Chip

    @property
    def predicted(self) -> float:
        """Samples a second of all chips, each with the whole model."""
        return self.figure.chips * self.chip.rate

    @property
    def is_fitted(self) -> bool:
        """Whether it is of the half that a stack's figures are fitted to."""
        text = f"{self.figure.stack}/{self.figure.model}/{self.figure.where}"
        return hashlib.sha256(text.encode()).digest()[0] % 2 == 0

    def reached(self, stack: Stack, share: float) -> float:
        """Return samples a second of all chips under a stack; two reach a share of twice one's rate."""
        samples = self.chip.samples
        seconds = stack.seconds(self.chip.name, samples / self.chip.rate, self.chip.starts, samples)
        if seconds is None:
            raise ValueError(f"{self.figure.stack}: nothing is known of {self.chip.name}")
        return samples / seconds * (1 if self.figure.chips == 1 else self.figure.chips * share)


FACTORS = [number / 20 for number in range(20, 121)]
SAMPLE_SECONDS = [number / 500_000 for number in range(51)]
SHARES = [number / 50 for number in range(25, 51)]


def predicted(figure: Published) -> Chip:
    """Return what ``loom compile`` predicts of one chip under the figure's own settings."""
    import torch_loom

    (make, inputs), setting = MODELS[figure.model], figure.setting
    name = DEVICE_CONFIGS[figure.board].chip
    with tempfile.TemporaryDirectory() as folder:
        executable = torch_loom.compile(
            make().eval(),
            (inputs(setting.samples),),
            chip=name,
            default_df_override=setting.data_format,
            math_fidelity=setting.math_fidelity,
            backend_device_descriptor_path=_descriptor(setting.grid, Path(folder)),
        )
    rate = executable.end_to_end_samples_per_second
    return Chip(name, setting.samples, rate, executable.plan["end_to_end"]["starts"])


def _descriptor(grid: Grid | None, folder: Path) -> str:
    """Return the file of a chip with these cores, or nothing for all that it has."""
    if grid is None:
        return ""
    path = folder / "cores.yaml"
    path.write_text(f"grid: {{rows: {grid[0]}, columns: {grid[1]}}}\n", encoding="utf-8")
    return str(path)


def compared() -> Iterator[Compared]:
    """Predict each figure, printing a line each; a model whose package is not installed is passed over."""
    known: dict[tuple[str, str, Setting], Chip] = {}
    for figure in FIGURES:
        key = (figure.model, DEVICE_CONFIGS[figure.board].chip, figure.setting)
        if key not in known:
            try:
                known[key] = predicted(figure)
            except ImportError as error:
                print(f"{figure.model}: {error}", flush=True)
                continue
        one = Compared(figure, known[key])
        print(
            f"{figure.stack}, {figure.model}, {figure.where}: published {figure.rate:,.0f}, "
            f"predicted {one.predicted:,.0f}",
            flush=True,
        )
        yield one


def epoch_seconds(found: Sequence[Compared]) -> float:
    """Return what an epoch takes to start: the median over models of what rates at two sizes of runs say."""
    starts = {
        one.figure.model: one.chip.starts
        for one in found
        if one.figure.stack == PYBUDA and one.figure.board == "wh_n150"
    }

    def of(model: str) -> float:
        (few, rate), (many, higher) = BY_SAMPLES[model].items()
        sample = (many / higher - few / rate) / (many - few)
        return (few / rate - few * sample) / starts[model]

    return round(statistics.median(of(model) for model in BY_SAMPLES if model in starts), 6)


def fit(found: Sequence[Compared], start: float) -> tuple[Stack, float]:
    """Return what comes closest to published rates, of one chip and of two.

    That is the least sum of their logarithms' distances. Squares would follow the pair that contradicts the
    rest: ResNet-50 runs three times slower on a chip of an n300 than on an n150, other models a fifth.
    """

    def error(several: Sequence[Compared], stack: Stack, share: float = 1.0) -> float:
        return sum(abs(math.log(one.reached(stack, share) / one.figure.rate)) for one in several)

    def best(name: str) -> Reached:
        several = [one for one in found if one.chip.name == name and one.figure.chips == 1]
        choices = itertools.starmap(Reached, itertools.product(FACTORS, SAMPLE_SECONDS))
        return min(choices, key=lambda each: error(several, Stack(start, {name: each})))

    stack = Stack(start, {name: best(name) for name in sorted({one.chip.name for one in found})})
    two = [one for one in found if one.figure.chips == 2]
    return stack, min(SHARES, key=lambda share: error(two, stack, share))


def fitted(found: Sequence[Compared]) -> tuple[Stack, float]:
    """Return what PyBuda reached, from the half of its figures that it is fitted to."""
    half = [one for one in found if one.is_fitted and one.figure.stack == PYBUDA]
    return fit(half, epoch_seconds(found))


def groups(found: Sequence[Compared]) -> dict[str, list[tuple[Compared, float]]]:
    """Return by group its figures and what is said of each, samples a second."""
    reached = fitted(found)
    made: dict[str, list[tuple[Compared, float]]] = {name: [] for name in SUBJECT.targets}
    for one in found:
        if one.figure.stack == PYBUDA:
            made["fitted" if one.is_fitted else "tested"].append((one, one.reached(*reached)))
        else:
            made["as_predicted"].append((one, one.predicted))
    return made


def _kept() -> list[Compared]:
    chips = json.loads(KEPT.read_text(encoding="utf-8"))
    by_name = {_key(figure): figure for figure in FIGURES}
    return [Compared(by_name[name], Chip(**one)) for name, one in chips.items()]


def _key(figure: Published) -> str:
    return f"{figure.stack}/{figure.model}/{figure.where}"


def write_stacks() -> None:
    """Make what is fitted the product's."""
    stack, _ = fitted(_kept())
    chips = {name: one._asdict() for name, one in stack.chips.items()}
    content = {PYBUDA: {"epoch_seconds": stack.epoch_seconds, "chips": chips}}
    stacks.FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


class _Subject(Subject):
    def docs_body(self, figures: Sequence[Figure]) -> str:
        found = _kept()
        rows = [
            [
                one.figure.stack,
                one.figure.model,
                f"`{one.figure.where}`",
                f"{one.figure.setting.data_format}, {one.figure.setting.math_fidelity}",
                str(one.figure.setting.samples),
                "all" if one.figure.setting.grid is None else "{} x {}".format(*one.figure.setting.grid),
                f"{one.figure.rate:,.0f}",
                f"{one.predicted:,.0f}",
                f"{rate:,.0f}" if one.figure.stack == PYBUDA else "",
                f"`{name}`",
            ]
            for name, several in groups(found).items()
            for one, rate in several
        ]
        stack, share = fitted(found)
        by_chip = "; ".join(
            f"on `{name}` {one.factor:.2f} times the predicted time, and {one.sample_seconds * 1e6:.0f} µs "
            "for each sample and epoch"
            for name, one in stack.chips.items()
        )
        note = (
            "Samples a second of whole boards (`benchmarks/published.py`, with the source of each setting). "
            "*Predicted* is what `loom compile MODEL --chip n150`, or another board, prints as *with the "
            "host* for these options (`default_df_override`, `math_fidelity`), samples of input and cores of "
            "a chip (`backend_device_descriptor_path`), times the chips of a board: nothing is fitted to it. "
            "`wh_n300/1` is one chip of an n300. *As PyBuda reaches* is what it prints as *under PyBuda*, "
            f"which is fitted to half of its figures: {by_chip}; and {stack.epoch_seconds * 1e3:.2f} ms for "
            "each start of an epoch, from rates at two numbers of samples. Two chips are "
            f"{share:.2f} of twice one."
        )
        head = ["stack", "model", "board", "format", "samples", "cores", "published", "predicted"]
        table = markdown_table([*head, "as PyBuda reaches", "figure"], rows)
        return "\n\n".join([super().docs_body(figures), note, table])


_ERROR = "mean relative error, and the largest, of"
SUBJECT = _Subject(
    "boards",
    "Boards",
    "How predictions compare with published rates of Tenstorrent's boards.",
    {
        "fitted": Target(0.25, "", f"{_ERROR} PyBuda's figures, the half that is fitted"),
        "tested": Target(0.25, "", f"{_ERROR} the other half"),
        "as_predicted": Target(0.25, "", f"{_ERROR} predictions beside TT-NN's figures, nothing fitted"),
    },
)


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Predicts the figures, printing a line each; ``quick``: takes the predictions that were kept."""
    if not quick:
        found = {_key(one.figure): asdict(one.chip) for one in compared()}
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return [
        SUBJECT.show(Figure(name, statistics.mean(values), max(values)))
        for name, several in groups(_kept()).items()
        if (values := [abs(rate / one.figure.rate - 1) for one, rate in several])
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    writes = "--write-stacks" in given
    if writes:
        given.remove("--write-stacks")
    status = SUBJECT.run(measure, given)
    if writes:
        write_stacks()
    return status


if __name__ == "__main__":
    sys.exit(main())

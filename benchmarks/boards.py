"""Predicted rates of Tenstorrent's boards beside published ones, and what PyBuda reached of its chips.

A prediction is what ``loom compile`` prints for the same options: samples a second from the host and back.
No published figure has a part in it. PyBuda's kernels were slower than the chip allows, and its epochs took
time. What an epoch takes to start is read off rates at two numbers of samples, and what two chips reach of
twice one's rate off rates of both. How many times as long as predicted kernels work, by chip, and what an
epoch adds to each sample are fitted. All of that is of one half of the figures, and tested on the other; a
hash of stack, model and board says which half a figure is of. ``--write-stacks`` makes what is said of one
chip the product's.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._figures import Figure, Subject, Target
from benchmarks.compile import Encoder
from benchmarks.published import BY_SAMPLES, FIGURES, PYBUDA, TT_NN, Grid, Published, Setting
from tools.blocks import markdown_table
from torch_loom.chips import stacks
from torch_loom.chips.stacks import OnChip, Run, Stack
from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.errors import LoomError

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
class Prediction:
    """A published rate, what is predicted of each chip under its setting, and the run that this is of."""

    figure: Published
    chip_rate: float
    run: Run

    @property
    def chip(self) -> str:
        """The chip's name."""
        return DEVICE_CONFIGS[self.figure.board].chip

    @property
    def samples_per_second(self) -> float:
        """Of all chips, each with the whole model."""
        return self.figure.chips * self.chip_rate

    @property
    def is_fitted(self) -> bool:
        """Whether it is of the half that a stack's figures are of."""
        return hashlib.sha256(self.figure.key.encode()).digest()[0] % 2 == 0

    def reached(self, stack: Stack, share: float) -> float:
        """Return samples a second of all chips under a stack; two reach a share of twice one's rate."""
        rate = stack.samples_per_second(self.chip, self.run)
        if rate is None:
            raise ValueError(f"{self.figure.stack}: nothing is known of {self.chip}")
        return rate if self.figure.chips == 1 else rate * self.figure.chips * share


# What is tried: half to six times the predicted time, and up to 0.1 ms for an epoch's sample.
FACTORS = [number / 20 for number in range(10, 121)]
SAMPLE_SECONDS = [number / 500_000 for number in range(51)]


def predicted(figure: Published) -> tuple[float, Run]:
    """Return what ``loom compile`` predicts of a chip under a figure's setting: samples a second, the run."""
    import torch_loom
    from torch_loom.compiler import configure_mixed_precision, reset_configuration

    (make, inputs), setting = MODELS[figure.model], figure.setting
    reset_configuration()
    if setting.hifi2:
        configure_mixed_precision(name_regex=setting.hifi2, math_fidelity="HiFi2")
    with tempfile.TemporaryDirectory() as folder:
        executable = torch_loom.compile(
            make().eval(),
            (inputs(setting.samples),),
            chip=DEVICE_CONFIGS[figure.board].chip,
            default_df_override=setting.data_format,
            math_fidelity=setting.math_fidelity,
            backend_device_descriptor_path=_descriptor(setting.grid, Path(folder)),
        )
    reset_configuration()
    parts = executable.plan["end_to_end"]
    run = Run(setting.samples, parts["work_seconds"], parts["starts"], parts["host_seconds"])
    return executable.end_to_end_samples_per_second, run


def _descriptor(grid: Grid | None, folder: Path) -> str:
    """Return the file of a chip with these cores, or nothing for all that it has."""
    if grid is None:
        return ""
    path = folder / "cores.yaml"
    path.write_text(f"grid: {{rows: {grid[0]}, columns: {grid[1]}}}\n", encoding="utf-8")
    return str(path)


def predictions() -> Iterator[Prediction]:
    """Predict each figure, printing a line each."""
    known: dict[tuple[str, str, Setting], tuple[float, Run]] = {}
    for figure in FIGURES:
        same = (figure.model, DEVICE_CONFIGS[figure.board].chip, figure.setting)
        if same not in known:
            known[same] = predicted(figure)
        found = Prediction(figure, *known[same])
        print(
            f"{figure.key}: published {figure.samples_per_second:,.0f}, "
            f"predicted {found.samples_per_second:,.0f}",
            flush=True,
        )
        yield found


def epoch_seconds(half: Sequence[Prediction]) -> float:
    """Return what an epoch takes to start: the median over models of what rates at two sizes of runs say."""
    found = []
    for each in half:
        rates = BY_SAMPLES.get(each.figure.model) if each.figure.board == "wh_n150" else None
        if rates and each.run.starts:
            (few, rate), (many, higher) = rates.items()
            sample = (many / higher - few / rate) / (many - few)
            found.append((few / rate - few * sample) / each.run.starts)
    if not found:
        raise LoomError("no model of an n150 has published rates at two sizes of runs")
    return round(statistics.median(found), 6)


def share_of_two(half: Sequence[Prediction]) -> float:
    """Return what two chips reach of twice one's rate: the median over models that have both rates."""
    rates = {(each.figure.model, each.figure.where): each.figure.samples_per_second for each in half}
    shares = [
        rate / (2 * rates[model, "wh_n300/1"])
        for (model, where), rate in rates.items()
        if where == "wh_n300" and (model, "wh_n300/1") in rates
    ]
    if not shares:
        raise LoomError("no model has published rates of one chip and of two")
    return round(statistics.median(shares), 2)


def fit(half: Sequence[Prediction]) -> tuple[Stack, float]:
    """Return what comes closest to published rates: of one chip, and the share of two.

    The least sum of the logarithms' distances counts: squares would follow the pair that contradicts the
    rest, since ResNet-50 runs three times slower on a chip of an n300 than on an n150, other models a fifth.
    """
    start, share = epoch_seconds(half), share_of_two(half)

    def error(several: Sequence[Prediction], stack: Stack) -> float:
        return sum(
            abs(math.log(each.reached(stack, share) / each.figure.samples_per_second)) for each in several
        )

    def best(chip: str) -> OnChip:
        several = [each for each in half if each.chip == chip and each.figure.chips == 1]
        tried = itertools.starmap(OnChip, itertools.product(FACTORS, SAMPLE_SECONDS))
        return min(tried, key=lambda kernels: error(several, Stack(start, {chip: kernels})))

    return Stack(start, {chip: best(chip) for chip in sorted({each.chip for each in half})}), share


def pybudas(found: Sequence[Prediction]) -> list[Prediction]:
    """Return those of PyBuda's figures."""
    return [each for each in found if each.figure.stack == PYBUDA]


def fitted(found: Sequence[Prediction]) -> tuple[Stack, float]:
    """Return what PyBuda reached, from one half of its figures."""
    return fit([each for each in pybudas(found) if each.is_fitted])


Said = list[tuple[Prediction, float]]
"""Predictions, and what is said of each figure, samples a second."""


def groups(found: Sequence[Prediction], reached: tuple[Stack, float]) -> dict[str, Said]:
    """Return by group what is said."""
    by_half: dict[str, Said] = {"fitted": [], "tested": []}
    for each in pybudas(found):
        by_half["fitted" if each.is_fitted else "tested"].append((each, each.reached(*reached)))
    models = {each.figure.model for each in pybudas(found)}
    others = {
        name: fit([each for each in pybudas(found) if each.figure.model != name]) for name in sorted(models)
    }
    return {
        **by_half,
        "other_models": [(each, each.reached(*others[each.figure.model])) for each in pybudas(found)],
        "as_predicted": [(each, each.samples_per_second) for each in found if each.figure.stack == TT_NN],
    }


def keep(found: Sequence[Prediction]) -> None:
    """Write predictions where the docs and the product's figures are made from."""
    content = [
        {
            "figure": each.figure.key,
            "setting": each.figure.setting._asdict(),
            "chip_rate": each.chip_rate,
            "run": each.run._asdict(),
        }
        for each in found
    ]
    KEPT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def kept() -> list[Prediction]:
    """Return the predictions that were kept.

    Raises:
        LoomError: they are not of the figures and settings that are published.
    """
    content = {each["figure"]: each for each in json.loads(KEPT.read_text(encoding="utf-8"))}
    found = []
    for figure in FIGURES:
        each = content.pop(figure.key, None)
        setting = json.loads(json.dumps(figure.setting._asdict()))
        if each is None or each["setting"] != setting:
            raise LoomError(f"{KEPT.name} has no prediction of {figure.key} under its setting: predict again")
        found.append(Prediction(figure, each["chip_rate"], Run(**each["run"])))
    if content:
        raise LoomError(f"{KEPT.name} has predictions of what is not published: {', '.join(content)}")
    return found


def write_stacks() -> None:
    """Make what is fitted the product's."""
    stack, _ = fitted(kept())
    chips = {name: kernels._asdict() for name, kernels in stack.chips.items()}
    content = {PYBUDA: {"epoch_seconds": stack.epoch_seconds, "chips": chips}}
    stacks.FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


class _Subject(Subject):
    def docs_body(self, figures: Sequence[Figure]) -> str:
        found = kept()
        stack, share = fitted(found)
        rows = []
        for group, said in groups(found, (stack, share)).items():
            for each, rate in said if group != "other_models" else ():
                figure, setting = each.figure, each.figure.setting
                rows.append(
                    [
                        figure.stack,
                        figure.model,
                        f"`{figure.where}`",
                        f"{setting.data_format}, {setting.math_fidelity}"
                        + (", in part HiFi2" * bool(setting.hifi2)),
                        str(setting.samples),
                        "all" if setting.grid is None else "{} x {}".format(*setting.grid),
                        f"{figure.samples_per_second:,.0f}",
                        f"{each.samples_per_second:,.0f}",
                        f"{rate:,.0f}" if figure.stack == PYBUDA else "",
                        f"`{group}`",
                    ]
                )
        by_chip = "; ".join(
            f"on `{name}` kernels work {kernels.factor:.2f} times as long as predicted, and an epoch adds "
            f"{kernels.sample_seconds * 1e6:.0f} µs to each sample"
            for name, kernels in stack.chips.items()
        )
        note = (
            "Samples a second of whole boards (`benchmarks/published.py`, with the source of each setting). "
            "*Predicted* is what `loom compile MODEL --chip n150`, or another board of one chip, prints as "
            "*with the host* for these options (`default_df_override`, `math_fidelity`), samples of a chip's "
            "input and its cores (`backend_device_descriptor_path`); for an n300, two times that of one of "
            "its chips, since each ran the whole model. `wh_n300/1` is one of them alone. No prediction is "
            "fitted to a published rate. *As PyBuda reaches* is what it prints as *under PyBuda*; for an "
            f"n300, {share:.2f} of two times that. It is fitted to half of PyBuda's figures: an epoch takes "
            f"{stack.epoch_seconds * 1e3:.2f} ms to start; {by_chip}. Another half would give other numbers: "
            "`other_models` says how far off what is fitted is for a model that it has not seen."
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
        "other_models": Target(
            None, "", f"{_ERROR} each of PyBuda's models, fitted to the other models' alone"
        ),
        "as_predicted": Target(0.25, "", f"{_ERROR} predictions beside TT-NN's figures, nothing fitted"),
    },
    columns=("mean", "largest"),
)


def measure(device: torch.device, quick: bool) -> list[Figure]:
    """Predicts the figures, printing a line each; ``quick``: takes the predictions that were kept."""
    if not quick:
        keep(list(predictions()))
    found = kept()
    return [
        SUBJECT.show(Figure(group, statistics.mean(errors), max(errors)))
        for group, said in groups(found, fitted(found)).items()
        if (errors := [abs(rate / each.figure.samples_per_second - 1) for each, rate in said])
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

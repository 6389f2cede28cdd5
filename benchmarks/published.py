"""Published rates of Tenstorrent's boards with the settings that they were measured under, the only copy.

Samples a second of a whole board with its host, from the first input pushed to the last output read. An n150
has one Wormhole chip of 72 cores, an n300 two of 64.

PyBuda's are of the README of tt-buda-benchmarks (commit 28f2a90, August 2024). Formats, fidelities and an
e150's samples are of its ``run_benchmark_tt_perf``; Wormhole's samples are the README's, which for ViT has 64
where that script has 256. Models' own settings that hold for all products are taken (MobileNetV2 at HiFi2 on
Wormhole; VoVNet-39 at HiFi2 by ``enable_amp_light`` on an e150). Not taken are those of single ops: sums in
Float16_b (BERT, ResNet-50, MobileNetV1), depthwise convolutions and products of elements at HiFi2
(MobileNetV1). On two chips each runs the whole model on half of the samples (``PYBUDA_N300_DATA_PARALLEL``).

TT-NN's rates and samples are of tt-metal: ``models/README.md`` of November 2025, and ``README.md`` of 2024
for an e150. Formats and grids are the models' configurations under ``models/demos`` (``sentence_bert``,
``vit``, ``grayskull/vit``, ``metal_BERT_large_11``, ``ttnn_resnet``, ``mobilenetv2``); those that name no
grid have that of ``tt_metal/core_descriptors``, which leaves cores for dispatch. Products of block floats are
LoFi where nothing else is asked (``matmul_op.cpp``): BERT-base asks for HiFi2 in the first product of each
feed-forward part. ViT's attention runs on 48 cores of an n150, the rest on 64. Two chips run the whole model
each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch_loom.config.boards import DEVICE_CONFIGS

__all__ = ["BY_SAMPLES", "FIGURES", "PYBUDA", "TT_NN", "Grid", "Published", "Setting"]

PYBUDA, TT_NN = "PyBuda", "TT-NN"
Grid = tuple[int, int]
"""Rows and columns of cores."""

_E150, _N150, _N300, _P150 = "gs_e150", "wh_n150", "wh_n300", "bh_p150"


class Setting(NamedTuple):
    """How a figure was measured.

    Attributes:
        samples: that a chip takes at once.
        grid: the cores of a chip that were used; None: all.
        hifi2: a regular expression of the names of products that were at HiFi2 all the same.
    """

    samples: int
    data_format: str
    math_fidelity: str
    grid: Grid | None = None
    hifi2: str = ""


class Published(NamedTuple):
    """A rate of some chips of a board, which has the name that it has for ``device_config``."""

    stack: str
    model: str
    board: str
    chips: int
    samples_per_second: float
    setting: Setting

    @property
    def key(self) -> str:
        """What it is of."""
        return f"{self.stack}/{self.model}/{self.where}"

    @property
    def where(self) -> str:
        """The board, with the number of chips where not all are used."""
        whole = DEVICE_CONFIGS[self.board].num_chips
        return self.board if self.chips == whole else f"{self.board}/{self.chips}"


class _Buda(NamedTuple):
    """Settings on Wormhole and on Grayskull; rates of an e150, an n150, one chip of an n300, and an n300."""

    wormhole: Setting
    grayskull: Setting
    e150: float
    n150: float
    n300_chip: float
    n300: float | None

    def figures(self, model: str) -> Iterator[Published]:
        wormhole, chip = self.wormhole, self.wormhole._replace(grid=(8, 8))
        yield Published(PYBUDA, model, _E150, 1, self.e150, self.grayskull)
        yield Published(PYBUDA, model, _N150, 1, self.n150, wormhole)
        yield Published(PYBUDA, model, _N300, 1, self.n300_chip, chip)
        if self.n300 is not None:
            half = chip._replace(samples=wormhole.samples // 2)
            yield Published(PYBUDA, model, _N300, 2, self.n300, half)


def _lofi(samples: int) -> Setting:
    return Setting(samples, "Bfp8_b", "LoFi")


def _half(samples: int, fidelity: str = "HiFi3") -> Setting:
    return Setting(samples, "Float16_b", fidelity)


_BUDA: Mapping[str, _Buda] = {
    "BERT-large": _Buda(_lofi(64), _lofi(64), 99, 118, 103, None),
    "ViT-base": _Buda(_lofi(64), _lofi(64), 363, 540, 447, 546),
    "ResNet-50": _Buda(_lofi(256), _half(64), 1410, 2891, 1060, 2000),
    "MobileNetV1": _Buda(_lofi(128), _half(64), 2924, 3102, 2338, 2978),
    "MobileNetV2": _Buda(Setting(256, "Bfp8_b", "HiFi2"), _half(64), 1491, 2721, 2439, 4332),
    "MobileNetV3": _Buda(_half(64, "HiFi2"), _half(64), 1741, 1981, 1670, 2017),
    "VoVNet-39": _Buda(_lofi(128), _half(64, "HiFi2"), 819, 1603, 1197, 1931),
    "Inception-v4": _Buda(_lofi(128), _half(64), 458, 1061, 1116, 1810),
}


class _Nn(NamedTuple):
    """Rates of a model by board, with samples of a chip and its grid; which products are at HiFi2."""

    boards: Mapping[str, tuple[float, int, Grid]]
    hifi2: str = ""

    def figures(self, model: str) -> Iterator[Published]:
        for board, (rate, samples, grid) in self.boards.items():
            setting = _lofi(samples)._replace(grid=grid, hifi2=self.hifi2)
            yield Published(TT_NN, model, board, DEVICE_CONFIGS[board].num_chips, rate, setting)


# The first product of a layer's feed-forward part is the fifth of its six (benchmarks.compile.Layer).
_FEED_FORWARD = f"linear_({'|'.join(str(6 * layer + 4) for layer in range(12))})"
_NN: Mapping[str, _Nn] = {
    "BERT-large": _Nn({_E150: (362, 12, (8, 12)), _N150: (270, 8, (8, 8))}),
    "BERT-base": _Nn(
        {_N150: (433, 8, (8, 6)), _N300: (772, 8, (8, 6)), _P150: (929, 8, (8, 6))}, _FEED_FORWARD
    ),
    "ViT-base": _Nn(
        {
            _E150: (860, 8, (8, 12)),
            _N150: (1370, 8, (8, 8)),
            _N300: (1900, 8, (8, 8)),
            _P150: (3700, 10, (10, 12)),
        }
    ),
    "ResNet-50": _Nn(
        {
            _E150: (4400, 20, (9, 12)),
            _N150: (4700, 16, (8, 8)),
            _N300: (9200, 16, (8, 8)),
            _P150: (12600, 16, (9, 14)),
        }
    ),
    "MobileNetV2": _Nn({_N150: (3030, 10, (8, 8)), _N300: (5280, 10, (8, 8))}),
}

FIGURES: tuple[Published, ...] = (
    *(figure for model, buda in _BUDA.items() for figure in buda.figures(model)),
    *(figure for model, nn in _NN.items() for figure in nn.figures(model)),
)

BY_SAMPLES: Mapping[str, Mapping[int, float]] = {
    "ResNet-50": {64: 2522, 256: 2688},
    "VoVNet-39": {64: 1349, 128: 1402},
    "MobileNetV1": {64: 2638, 128: 2765},
    "MobileNetV2": {64: 1895, 256: 2004},
    "Inception-v4": {64: 897, 128: 931},
}
"""PyBuda's of an n150 by the samples that it takes at once: the README's first two tables, of June 2024."""

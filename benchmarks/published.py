"""Published rates of Tenstorrent's boards, the only copy here.

Samples a second of a whole board with its host, from the first input pushed to the last output read. An n150
has one Wormhole chip of 72 cores, an n300 two of 64. PyBuda's are those of the README of tt-buda-benchmarks,
TT-NN's those of tt-metal: ``models/README.md`` of November 2025, and ``README.md`` of 2024 for the e150.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BY_CHIPS", "BY_STACK"]

_E150, _N150, _N300, _P150 = "gs_e150", "wh_n150", "wh_n300", "bh_p150"

BY_STACK: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "PyBuda": {
        "BERT-large": {_E150: 99, _N150: 118},
        "ViT-base": {_E150: 363, _N150: 540, _N300: 546},
        "ResNet-50": {_E150: 1410, _N150: 2891, _N300: 2000},
        "MobileNetV1": {_E150: 2924, _N150: 3102, _N300: 2978},
        "MobileNetV2": {_E150: 1491, _N150: 2721, _N300: 4332},
        "MobileNetV3": {_E150: 1741, _N150: 1981, _N300: 2017},
        "VoVNet-39": {_E150: 819, _N150: 1603, _N300: 1931},
        "Inception-v4": {_E150: 458, _N150: 1061, _N300: 1810},
    },
    "TT-NN": {
        "BERT-large": {_E150: 362, _N150: 270},
        "BERT-base": {_N150: 433, _N300: 772, _P150: 929},
        "ViT-base": {_E150: 860, _N150: 1370, _N300: 1900, _P150: 3700},
        "ResNet-50": {_E150: 4400, _N150: 4700, _N300: 9200, _P150: 12600},
        "MobileNetV2": {_N150: 3030, _N300: 5280},
    },
}
"""By the name that ``device_config`` has for a board."""

BY_CHIPS: Mapping[str, Mapping[int, float]] = {
    "ResNet-50": {1: 1060, 2: 2000, 4: 3315, 8: 4711},
    "BERT-large": {1: 103},
}
"""PyBuda's by number of Wormhole chips of one kind: n300 with one and both, QuietBox with four and eight.

One chip of an n300 runs ResNet-50 at 1060 images a second, an n150 at 2891: both are in the source, which
gives no reason; the chips differ by an eighth.
"""

"""Published rates of Tenstorrent's boards: the README of tt-buda-benchmarks, the only copy here.

Samples a second of a whole board with its host, from the first input pushed to the last output read. An n150
has one Wormhole chip of 72 cores, an n300 two of 64. One chip of an n300 runs ResNet-50 at 1060 images a
second, an n150 at 2891: both are in the source, which gives no reason; the chips differ by an eighth.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BY_BOARD", "BY_CHIPS"]

BY_BOARD: Mapping[str, Mapping[str, float]] = {
    "BERT-large": {"gs_e150": 99, "wh_n150": 118},
    "ViT-base": {"gs_e150": 363, "wh_n150": 540, "wh_n300": 546},
    "ResNet-50": {"gs_e150": 1410, "wh_n150": 2891, "wh_n300": 2000},
}
"""By the name that ``device_config`` has for a board."""

BY_CHIPS: Mapping[str, Mapping[int, float]] = {
    "ResNet-50": {1: 1060, 2: 2000, 4: 3315, 8: 4711},
    "BERT-large": {1: 103},
}
"""By number of Wormhole chips of one kind: n300 with one chip and with both, QuietBox with four and eight."""

"""The page on chips: how to describe one, and its keys, from their declarations."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from tools.blocks import markdown_table
from torch_loom.chips.chip import figures
from torch_loom.chips.description import is_required

FILE = "docs/chips.md"
EXAMPLE = """name = "mychip"
description = "eight cores that are ours"
memory = "8GiB"
memory_policy = "eager"
dtypes = ["float32", "float16", "bfloat16", "int8", "int32", "int64", "bool"]
amp_dtypes = ["bfloat16", "float16"]
capability_major = 1
capability_minor = 0
num_cores = 8
clock_mhz = 1200
dram_gbps = 400.0
kernel_launch_ns = 2000.0
host_issue_ns = 5000.0
efficiency_of = "wormhole_b0"

[peak_tflops]
float32 = 4.0
bfloat16 = 32.0

[sources]
dram_gbps = "the data sheet"
"""
"""A description that :func:`torch_loom.chips.load` takes."""

_INTRODUCTION = f"""# Describing a chip

Written by `python -m tools.docs`. `loom chips` lists the chips that are shipped, by vendor and
architecture; `loom chips show NAME` describes one with its roofline. A chip of your own is a TOML file:

```toml
{EXAMPLE}```

`loom chips check mychip.toml` says what is wrong with it, and which figures have no source. It refuses what
no hardware does: a share of a peak above 1.1, a kernel that takes more than 20 microseconds to start, bytes
that take less than the DRAM at 0.95 of its rate, a cache of more than 64 bytes a cycle for each core. Its
path goes wherever a chip's name goes: `TORCH_LOOM_CHIP=./mychip.toml`,
`loom plan --chip ./mychip.toml train.py`, `torch_loom.compile(model, (x,), chip="./mychip.toml")`.
Without the table `efficiency` the key `efficiency_of` names a shipped chip.

`loom chips fit SWEEP.json --base NAME --out mychip.toml` fits that table to timings that `loom chips measure`
took on a GPU. It begins with the base's efficiency and keeps what too few timings tell: a table, the
head of the file and its `sources` say how many timings tell each coefficient. `--report residuals.json` (or
`.csv`) writes what each row took, its forecast with and without the row fitted, and whether it was fitted.
Timings of collectives alone give the protocols of their fabrics, in the form of
`torch_loom/chips/collectives.json`: `--base` is the topology that joins the nodes, or the chip where all
ranks stand on one node, and `--out` ends in `.json`. Timings of another card than the base's are refused, and
so are rows a hundred times off the others; both are named.

Sixteen of the shipped cards are described from their data sheets without having been compared with them
again: `a10`, `a100_pcie40`, `a40`, `b200`, `k80`, `l4`, `l40s`, `mi300x`, `p100`, `p4`, `rtx3090`,
`rtx4090`, `rtx5090`, `t4`, `v100` and `v100_pcie`. Check a figure at the address that `loom chips show`
gives before you rely on it.

A figure that is left out is not known, or not there. The keys without a default are required.
"""


def _default(entry: Any) -> str:
    if is_required(entry):
        return ""
    value = entry.default if entry.default is not MISSING else entry.default_factory()
    return f"`{value!r}`" if value or isinstance(value, bool) else "none"


def page() -> str:
    """Returns the page."""
    rows = [
        [f"`{key}`", _default(entry), entry.metadata["check"].allowed, entry.metadata["meaning"]]
        for key, entry in figures().items()
    ]
    return f"{_INTRODUCTION}\n{markdown_table(['key', 'default', 'takes', 'meaning'], rows)}\n"

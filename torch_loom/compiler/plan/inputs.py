"""What becomes of an input between the host and its first op: where it is tiled, where a stride is undone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from torch_loom.chips.cost import Op
from torch_loom.chips.cost.calls import described
from torch_loom.compiler.ir import CONVOLUTIONS, op_name, value_of
from torch_loom.compiler.options import Options
from torch_loom.compiler.plan.model import Work
from torch_loom.compiler.target import TILE, Target
from torch_loom.numerics import DataFormat

TILES, ROW_MAJOR, PRESTRIDED = "tiles", "row_major", "prestrided"
"""How an input lies in its queue."""


def strided_convolution(node: fx.Node) -> int:
    """Return over how many pixels a convolution steps at once; 1: it is none, or its stride is 1."""
    if not op_name(node).startswith(CONVOLUTIONS):
        return 1
    value: Any = node.args[3] if len(node.args) > 3 else node.kwargs.get("stride", 1)
    steps = value if isinstance(value, list | tuple) else [value]
    return math.prod(int(step) for step in steps)


def layouts(inputs: Mapping[fx.Node, list[fx.Node]], options: Options) -> dict[str, str]:
    """Return how each input lies in its queue, by its name.

    The host makes tiles, unless ``enable_device_tilize`` leaves it to an op of the chip. Under
    ``enable_conv_prestride`` it also puts the pixels that a strided first convolution reads together.

    Args:
        inputs: the nodes that read each input.
    """
    found = {}
    for node, readers in inputs.items():
        is_strided = any(strided_convolution(reader) > 1 for reader in readers)
        if is_strided and options.enable_conv_prestride:
            found[node.name] = PRESTRIDED
        elif options.enable_device_tilize and value_of(node).dtype.is_floating_point:
            found[node.name] = ROW_MAJOR
        else:
            found[node.name] = TILES
    return found


def gather_cycles(parts: list[fx.Node], inputs: set[fx.Node], options: Options, target: Target) -> float:
    """Return the cycles, of one core, that a strided first convolution takes to pick pixels out of tiles.

    None where the host has put them together: each step of the stride unpacks the input's tiles once more.
    """
    if options.enable_conv_prestride:
        return 0.0
    picked = 0
    for part in parts:
        steps = strided_convolution(part)
        source = part.all_input_nodes[0] if part.all_input_nodes else None
        if steps > 1 and source in inputs:
            picked += (steps - 1) * value_of(source).numel()
    return picked / TILE


def tilizer_name(name: str) -> str:
    """Return the name of the op that makes tiles of an input."""
    return f"tilize_{name}"


def tilizer(node: fx.Node, name: str, target: Target) -> tuple[Work, Callable[[int], float]]:
    """Return the op that makes tiles of an input, and what it takes by its number of cores.

    Args:
        name: of the input's data format; empty: that of its dtype.
    """
    value = value_of(node)
    shape = tuple(int(size) for size in value.shape)
    each = DataFormat[name].bytes_per_element if name else value.dtype.itemsize
    size = max(1, math.ceil(value.numel() * each))
    columns = shape[-1] if shape else 1
    rows = math.prod(shape[:-1])
    tiles = (max(1, -(-rows // TILE)), max(1, -(-columns // TILE)))
    own = tilizer_name(node.name)
    work = Work(own, "loom::tilize", (own,), 0, size, size, tiles, shape, name, max_t=4096)
    tensor = described(value)
    return work, target.timer(Op("clone", (tensor,), (tensor,)))

"""Padding, which convolutions and pooling share. Pads are ONNX's: all begins, then all ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from torch_loom.compiler.onnx.table import Int, Ints


class Window(TypedDict, total=False):
    """Attributes of convolutions and pooling."""

    auto_pad: str
    dilations: Ints
    pads: Ints
    strides: Ints


class Convolution(Window, total=False):
    """Attributes of convolutions."""

    group: Int
    kernel_shape: Ints


def steps_of(window: Window, rank: int) -> tuple[list[int], list[int]]:
    """Return strides and dilations."""
    return list(window.get("strides") or [1] * rank), list(window.get("dilations") or [1] * rank)


def pads_of(window: Window, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """Return the padding: as given, or such that a stride divides the size (``SAME_*``)."""
    rank = len(kernel)
    auto_pad, pads = window.get("auto_pad", "NOTSET"), window.get("pads")
    if auto_pad in ("NOTSET", "") and pads is not None:
        return list(pads)
    if not auto_pad.startswith("SAME"):
        return [0] * (2 * rank)
    strides, dilations = steps_of(window, rank)
    totals = []
    for axis in range(rank):
        outputs = -(-sizes[axis] // strides[axis])
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        totals.append(max((outputs - 1) * strides[axis] + reach - sizes[axis], 0))
    return same_pads(totals, auto_pad == "SAME_LOWER")


def same_pads(totals: Sequence[int], more_at_begin: bool) -> list[int]:
    """Return pads that share totals between both ends; an odd element goes to the end, or to the begin."""
    halves = [total // 2 for total in totals]
    others = [total - half for total, half in zip(totals, halves, strict=True)]
    return [*others, *halves] if more_at_begin else [*halves, *others]


def torch_pads(pads: Sequence[int]) -> list[int]:
    """Return pads as ``torch.nn.functional.pad`` takes them: pairs from the last dimension on."""
    rank = len(pads) // 2
    return [pads[axis + side * rank] for axis in reversed(range(rank)) for side in (0, 1)]

"""What PyTorch's tags say of an op that the tape names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_loom import ops

# (address, sizes, strides, bytes of an element, is written, dtype)
Operand = tuple[int, tuple[int, ...], tuple[int, ...], int, bool, str]

_MASKS = frozenset({"bool", "uint8"})


class OpTags:
    """Which ops let the host wait for their stream, and which convert their operands to one dtype.

    An op that returns a value of the host's (``equal``) has finished when it returns. An op whose result has
    as many elements as the values decide (``nonzero``) waits for what was issued before it, and goes on
    itself.
    """

    def __init__(self) -> None:
        self._tags: dict[str, frozenset[torch.Tag]] = {}

    def is_counted(self, operator: str, operands: Sequence[Operand]) -> bool:
        """Return whether the host waits for the size of the result."""
        if torch.Tag.dynamic_output_shape not in self._tags_of(operator):
            return False
        if any("mask_counted" in ops.facts_of(f"{operator}{overload}") for overload in ("", ".Tensor")):
            # Only masks are counted. The first operand is what is indexed.
            return any(operand[5] in _MASKS for operand in operands[1:])
        return True

    def is_read(self, operator: str) -> bool:
        """Return whether the host waits for the result itself."""
        return torch.Tag.data_dependent_output in self._tags_of(operator)

    def promotes(self, operator: str) -> bool:
        """Return whether operands of several dtypes are computed in one."""
        return torch.Tag.pointwise in self._tags_of(operator) or operator == "aten::cat"

    def _tags_of(self, operator: str) -> frozenset[torch.Tag]:
        tags = self._tags.get(operator)
        if tags is None:
            tags = self._tags[operator] = self._look_up(operator)
        return tags

    @staticmethod
    def _look_up(operator: str) -> frozenset[torch.Tag]:
        namespace, _, name = operator.partition("::")
        packet: Any = getattr(getattr(torch.ops, namespace), name.partition(".")[0], None) if name else None
        if packet is None:
            return frozenset()
        return frozenset(tag for overload in packet.overloads() for tag in getattr(packet, overload).tags)

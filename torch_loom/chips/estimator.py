"""What the simulated clock asks: how long a command takes on a device, by the cost model of its chip."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch_loom.chips import rates as chip_rates
from torch_loom.chips import topologies
from torch_loom.chips.chip import Chip
from torch_loom.chips.collectives import collective_seconds
from torch_loom.chips.cost import CostModel, Kernel, launches
from torch_loom.chips.cost.calls import Operand, in_tf32, of_command
from torch_loom.chips.cost.lower import ATTRIBUTES, lower

logger = logging.getLogger("torch_loom")

# Families of moves, by the numbers that the clock gives them.
MOVES = (
    *("copy", "host_to_device", "host_to_device_pinned", "device_to_host", "device_to_host_pinned"),
    *("peer", "fill"),
)
_IN_MEMORY = ("copy", "fill")
# Of products and convolutions of float32: the program lets libraries compute them in TF32.
_ALLOWS_TF32 = "allow_tf32"


class Estimator:
    """Answers for devices whose chips ``chip_of`` knows; asked once for each op and shapes.

    Attributes:
        attributes: names of the arguments of ops that decide costs, beside tensors.
    """

    attributes = (*ATTRIBUTES, _ALLOWS_TF32)

    def __init__(self, chip_of: Callable[[int], Chip]) -> None:
        self._chip_of = chip_of
        self._chips: list[Chip] = []
        self._models: dict[int, CostModel] = {}
        self._failed: set[str] = set()

    def describe(self, device: int) -> tuple[int, int]:
        """Return the number of a device's chip, the same for equal chips, and what issuing takes in ns."""
        chip = self._chip_of(device)
        return self._number(chip), round(chip.host_issue_ns)

    def kernel_ns(
        self,
        chip: int,
        name: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        attributes: Mapping[str, Any],
    ) -> int:
        """Return nanoseconds of a kernel, by the name of its op (``aten::add.Tensor``) and its operands.

        ``chip`` is a number from :meth:`describe`.
        """
        model = self._model(chip)
        if "launch" in attributes:
            return round(self.launch_time(chip, inputs, attributes["launch"]).total_ns)
        op = of_command(name, inputs, outputs, attributes)
        if _ALLOWS_TF32 in attributes and self._chips[chip].tf32:
            op = in_tf32(op)
        try:
            return round(model.total_ns(lower(op)))
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
            # Operands that the op is not known with: what it moves is known all the same.
            if name not in self._failed:
                self._failed.add(name)
                logger.warning("%s: its time is that of the bytes it moves (%r)", name, error)
            return round(model.total_ns(lower(op._replace(name="", attributes={}))))

    def launch_time(self, chip: int, inputs: Sequence[Operand], launch: Sequence[int]) -> launches.LaunchTime:
        """Return what a launch of a program's own kernel takes.

        Args:
            chip: a number from :meth:`describe`.
            inputs: the tensors that it was given.
            launch: the kernel's number, the grid, and the whole numbers that decide how often its loops turn.
        """
        launched = launches.known(launch[0])
        numbers = dict(zip(launched.outline["numbers"], launch[4:], strict=True))
        work = launches.work_of(launched.outline, (launch[1], launch[2], launch[3]), numbers)
        footprint = [0.0, 0.0]
        for address, sizes, strides, item_bytes, is_written, _ in {each[0]: each for each in inputs}.values():
            if address:
                sizes_of = [size for size, stride in zip(sizes, strides, strict=True) if stride or not size]
                footprint[is_written] += math.prod(sizes_of) * item_bytes
        model = self._model(chip)
        return launches.launch_time(launched, work, (footprint[0], footprint[1]), model, self._chips[chip])

    def move_ns(self, chip: int, move: int, size_bytes: int) -> int:
        """Return nanoseconds of moving or filling so many bytes; ``move`` is a place in :data:`MOVES`."""
        family = MOVES[move]
        read = 0.0 if family == "fill" else float(size_bytes)
        written = float(size_bytes) if family in _IN_MEMORY else 0.0
        items = size_bytes / 4
        kernel = Kernel(family, "float32", read, written, max(read + written, 1.0), items=items)
        return round(self._model(chip).time(kernel).total_ns)

    def collective_ns(
        self, device: int, name: str, size_bytes: int, ranks: Sequence[int], topology: str | None
    ) -> int:
        """Return nanoseconds of a collective: see ``collective_seconds``.

        Args:
            device: a device that takes part; the others are like it.
            name: the collective's.
            size_bytes: on each rank, of the whole.
            ranks: the group's, in the default group.
            topology: of their cluster, by name or path; if None, the one that is shipped for the chip.
        """
        chip = self._chip_of(device)
        found = topologies.default_of(chip.name) if topology is None else topologies.load(topology)
        return round(collective_seconds(chip, name, size_bytes, topologies.layout(found, ranks)) * 1e9)

    def _model(self, chip: int) -> CostModel:
        found = self._models.get(chip)
        if found is None:
            found = self._models[chip] = chip_rates.model(self._chips[chip])
        return found

    def _number(self, chip: Chip) -> int:
        for number, known in enumerate(self._chips):
            if known is chip or known == chip:
                return number
        self._chips.append(chip)
        return len(self._chips) - 1

"""What `loom kernels` shows: the kernels that a process launched, with what the cost model says of them.

Only where ``TORCH_LOOM_KERNEL_REPORT`` names a folder: each process writes a file there at its end.
"""

from __future__ import annotations

import atexit
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_loom import config
from torch_loom.chips import rates
from torch_loom.chips.cost import launches
from torch_loom.kernels import report_file
from torch_loom.kernels.triton.device_chips import chip_of
from torch_loom.kernels.triton.forecast import footprint
from torch_loom.kernels.triton.library import Loaded

# One launch: device, kernel, grid, whole numbers, bytes that are read and written.
_Key = tuple[int, int, tuple[int, int, int], tuple[int, ...], tuple[float, float]]


class Recorder:
    """Counts the launches of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._launches: Counter[_Key] = Counter()
        self._kernels: dict[int, tuple[Loaded, Any]] = {}
        atexit.register(self.write)

    def note(
        self, loaded: Loaded, source: Any, device: int, grid: tuple[int, int, int], given: Sequence[Any]
    ) -> None:
        """Take in a launch."""
        number = loaded.number
        self._kernels.setdefault(number, (loaded, source))
        places = launches.known(number).outline["numbers"]
        numbers = tuple([int(given[place]) for place in places])
        moved = footprint(given, loaded.parameters, loaded.are_written)
        self._launches[device, number, grid, numbers, moved] += 1

    def summary(self) -> list[dict[str, Any]]:
        """Return a description of each kernel, the one that takes longest first."""
        found = []
        for number, (loaded, source) in self._kernels.items():
            shapes = [self._shape(key, count) for key, count in self._launches.items() if key[1] == number]
            function = getattr(source, "fn", None)
            found.append(
                {
                    "name": loaded.name,
                    "file": _file_of(function),
                    "line": _line_of(function),
                    "source": getattr(function, "src", ""),
                    "constants": _constants_of(source),
                    "generated": loaded.own_text(),
                    "options": loaded.options,
                    "checks": loaded.checks,
                    "is_watched": loaded.is_watched,
                    "launches": sum(shape["launches"] for shape in shapes),
                    "seconds": sum(shape["launches"] * shape["seconds"] for shape in shapes),
                    "bytes": sum(shape["launches"] * shape["bytes"] for shape in shapes),
                    "shapes": sorted(shapes, key=lambda each: -each["seconds"] * each["launches"])[:20],
                }
            )
        return sorted(found, key=lambda each: -each["seconds"])

    def _shape(self, key: _Key, count: int) -> dict[str, Any]:
        device, number, grid, numbers, moved = key
        launched = launches.known(number)
        chip = chip_of(device)
        places = launched.outline["numbers"]
        work = launches.work_of(launched.outline, grid, dict(zip(places, numbers, strict=True)))
        time = launches.launch_time(launched, work, moved, rates.model(chip), chip)
        products = sum(2.0 * m * n * k * times for (_, m, n, k), times in work.products.items())
        return {
            "chip": chip.name,
            "grid": grid,
            "launches": count,
            "seconds": time.total_ns * 1e-9,
            "bytes": time.moved_bytes,
            "products": products,
            "operations": work.operations + work.slow,
            "occupancy": time.occupancy,
            "waves": time.waves,
        }

    def write(self) -> None:
        """Write the file of this process, if it launched anything. A forked child has none of its own."""
        if not self._kernels or os.getpid() != self._pid:
            return
        report_file.write(self._folder, "triton", self.summary())


def _file_of(function: Any) -> str:
    code = getattr(getattr(function, "fn", None), "__code__", None)
    return "" if code is None else str(code.co_filename)


def _line_of(function: Any) -> int:
    # Of the word def, which the source begins with: decorators stand in front.
    lines = "".join(getattr(function, "raw_src", "")).splitlines()
    before = next((number for number, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return int(getattr(function, "starting_line_number", 0)) + before


def _constants_of(source: Any) -> dict[str, str]:
    names = list(getattr(getattr(source, "fn", None), "arg_names", ()))
    found = {}
    for path, value in getattr(source, "constants", {}).items():
        place = path[0] if isinstance(path, tuple) and path else path
        if isinstance(place, int) and place < len(names):
            found[names[place]] = repr(value)
    return found


_folder = config.kernel_report()
recorder = None if _folder is None else Recorder(_folder)

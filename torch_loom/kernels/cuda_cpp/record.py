"""What `loom kernels` shows of CUDA C++: the kernels that a process launched, and where they are written.

Only where ``TORCH_LOOM_KERNEL_REPORT`` names a folder: each process writes a file there at its end.
"""

from __future__ import annotations

import atexit
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch_loom import config
from torch_loom.chips.chip import Chip
from torch_loom.chips.estimator import Estimator
from torch_loom.kernels import report_file

_ENDS = (".cu", ".cuh", ".h", ".hpp", ".hip", ".cpp")


class _Launch(NamedTuple):
    device: int
    name: str
    place: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    is_checked: bool
    sizes: tuple[int, ...]


class Recorder:
    """Counts the launches of this process.

    Args:
        folder: where to write.
        chip_of: gives the description of a device's chip.
    """

    def __init__(self, folder: Path, chip_of: Callable[[int], Chip]) -> None:
        self._folder = folder
        self._chip_of = chip_of
        self._pid = os.getpid()
        self._launches: Counter[_Launch] = Counter()
        self._sources: dict[str, str] = {}
        atexit.register(self.write)

    def note(self, *launch: Any) -> None:
        """Take in a launch: the fields of :class:`_Launch`."""
        self._launches[_Launch(*launch)] += 1

    def note_source(self, name: str, text: str) -> None:
        """Remember the source of a kernel that stands in no file."""
        self._sources[name] = text

    def summary(self) -> list[dict[str, Any]]:
        """Return a description of each kernel, the one that takes longest first."""
        groups: dict[tuple[str, str, bool], list[tuple[_Launch, int]]] = {}
        for launch, count in self._launches.items():
            groups.setdefault((launch.name, launch.place, launch.is_checked), []).append((launch, count))
        estimator = Estimator(self._chip_of)
        found = []
        for (name, place, is_checked), launches in groups.items():
            shapes = [self._shape(estimator, launch, count) for launch, count in launches]
            file, line, source = self._source(name, place)
            found.append(
                {
                    "name": name,
                    "file": file,
                    "line": line,
                    "source": source,
                    "constants": {},
                    "generated": "",
                    "options": {"launched at": place} if place else {},
                    "checks": {"each": "accesses"} if is_checked else {},
                    "is_watched": False,
                    "launches": sum(shape["launches"] for shape in shapes),
                    "seconds": sum(shape["launches"] * shape["seconds"] for shape in shapes),
                    "bytes": sum(shape["launches"] * shape["bytes"] for shape in shapes),
                    "shapes": sorted(shapes, key=lambda each: -each["seconds"] * each["launches"])[:20],
                }
            )
        return sorted(found, key=lambda each: -each["seconds"])

    def _shape(self, estimator: Estimator, launch: _Launch, count: int) -> dict[str, Any]:
        number, _ = estimator.describe(launch.device)
        operands = [(0, (size,), (1,), 1, True, "") for size in launch.sizes]
        return {
            "chip": self._chip_of(launch.device).name,
            "grid": launch.grid,
            "block": launch.block,
            "shared_bytes": launch.shared_bytes,
            "launches": count,
            "seconds": estimator.kernel_ns(number, launch.name, operands, operands, {}) * 1e-9,
            "bytes": sum(launch.sizes),
        }

    def _source(self, name: str, place: str) -> tuple[str, int, str]:
        function = name.partition("<")[0].rpartition("::")[2]
        if name in self._sources:
            return "", *definition(self._sources[name], function)
        path, _, line = place.rpartition(":")
        if not path:
            return "", 0, ""
        # Where it is launched, else beside it.
        file = Path(path)
        beside = sorted(each for each in file.parent.glob("*") if each.suffix in _ENDS and each != file)
        for each in (file, *beside):
            try:
                text = each.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            number, source = definition(text, function)
            if source:
                return str(each), number, source
        return path, int(line or 0), ""

    def write(self) -> None:
        """Write the file of this process, if it launched anything. A forked child has none of its own."""
        if not self._launches or os.getpid() != self._pid:
            return
        report_file.write(self._folder, "cuda", self.summary())


def definition(text: str, function: str) -> tuple[int, str]:
    """Return the line and the text of a kernel's definition; 0 and "" where it has none."""
    name = rf"(?:template\s*<[^;{{}}]*>\s*)?(?:static\s+)?__global__\b[^;{{}}]*?\b{re.escape(function)}\s*\("
    for found in re.finditer(name, text):
        depth = 0
        for mark in re.finditer(r"[{};]", text[found.end() :]):
            if mark.group() == ";" and depth == 0:
                break  # a declaration
            depth += {"{": 1, "}": -1}.get(mark.group(), 0)
            if depth == 0:
                return text.count("\n", 0, found.start()) + 1, text[found.start() : found.end() + mark.end()]
    return 0, ""


recorder: Recorder | None = None


def start(chip_of: Callable[[int], Chip], listen: Callable[[Callable[..., None]], None]) -> None:
    """Count launches from now on, where a folder is named.

    Args:
        chip_of: gives the description of a device's chip.
        listen: has a function called with each launch.
    """
    global recorder
    folder = config.kernel_report()
    if folder is not None and recorder is None:
        recorder = Recorder(folder, chip_of)
        listen(recorder.note)

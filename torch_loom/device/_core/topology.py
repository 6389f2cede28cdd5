"""Which NPUs the devices are made of."""

from __future__ import annotations

from torch_loom import config
from torch_loom.device._core.device_index import DEVICE_TYPE

__all__ = ["device_summary", "physical_device_count"]

_HEADINGS = ("Logical Device", "Physical NPU IDs", "Status")


def physical_device_count() -> int:
    """Return how many NPUs the program sees, whichever devices they are grouped into.

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    return len(config.resolve().visible_npus)


def device_summary() -> None:
    """Print a table of the devices: the NPUs of each, and those that belong to none.

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    settings = config.resolve()
    groups = settings.groups
    rows = [
        (f"{DEVICE_TYPE}:{index}", _listed(group), "Active (Aggregated)" if len(group) > 1 else "Active")
        for index, group in enumerate(groups)
    ]
    used = {npu for group in groups for npu in group}
    unused = tuple(npu for npu in range(len(settings.visible_npus)) if npu not in used)
    if unused:
        rows.append(("-", _listed(unused), "Unused"))
    widths = [max(len(cell) for cell in column) for column in zip(_HEADINGS, *rows, strict=True)]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])

    def line(cells: tuple[str, ...]) -> str:
        return "".join(f"| {cell:<{width}} " for cell, width in zip(cells, widths, strict=True)) + "|"

    print(f"[{DEVICE_TYPE.upper()}] Device Topology Initialized:")
    print("\n".join([rule, line(_HEADINGS), rule, *(line(row) for row in rows), rule]))
    if unused:
        print(f"[Warning] {len(unused)} physical NPU(s) belong to no device.")


def _listed(npus: tuple[int, ...]) -> str:
    return f"[ {', '.join(str(npu) for npu in npus)} ]"

"""`loom smi`: devices, memory, utilisation and processes, in the layout of nvidia-smi."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_MIB = 1 << 20
_WIDTH = 91


@dataclass(frozen=True)
class DeviceState:
    """What is known of one device. Utilisations are percent of the last second; None: the chip does not say.

    Attributes:
        index: the physical index.
        name: the chip.
        uuid: as in the device's properties.
        memory_used_bytes: what all processes together have taken.
        memory_total_bytes: its capacity.
        utilization_percent: of kernels.
        memory_utilization_percent: of kernels and copies.
        power_milliwatts, power_limit_milliwatts: simulated.
        temperature_celsius: simulated.
        clock_mhz: simulated.
        processes: those that have taken memory, their memory in bytes by their ids.
    """

    index: int
    name: str
    uuid: str
    memory_used_bytes: int
    memory_total_bytes: int
    utilization_percent: int
    memory_utilization_percent: int
    power_milliwatts: int | None
    power_limit_milliwatts: int | None
    temperature_celsius: int | None
    clock_mhz: int | None
    processes: dict[int, int]


def states() -> list[DeviceState]:
    """Return what is known of each device, this process's own use aside.

    They are those of the settings and those that other processes use. A device that others use is the chip
    that it is to them.

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    import torch

    from torch_loom.device.telemetry import activity

    ours = range(torch.loom.device_count()) if torch.loom.is_available() else ()  # type: ignore[attr-defined]
    own = [_own_state(index) for index in ours]
    others = activity.devices_of_others() - {state.index for state in own}
    return sorted([*own, *map(_state_of_others, others)], key=lambda state: state.index)


def _own_state(index: int) -> DeviceState:
    from torch_loom.device import devices
    from torch_loom.device._core.first_use import _chip_figures

    properties = devices.get_device_properties(index)
    physical = properties.extra["physical_index"]
    assert isinstance(physical, int)
    chip = properties.extra["chip"]
    assert isinstance(chip, str)
    kind = _Kind(chip, properties.name, properties.total_memory, _chip_figures(index))
    return _state(physical, _kind_of_others(physical) or kind)


def _state_of_others(physical: int) -> DeviceState:
    kind = _kind_of_others(physical)
    return _state(physical, kind or _Kind("", "of several chips", 0, {}))


@dataclass(frozen=True)
class _Kind:
    chip: str
    name: str  # that the card calls itself
    total_bytes: int
    figures: Mapping[str, Any]


def _kind_of_others(physical: int) -> _Kind | None:
    """Return what the processes that use a device take it for; None: no process does, or they differ."""
    from torch_loom import chips
    from torch_loom.device.telemetry import activity
    from torch_loom.errors import ChipError

    users = [process for process in activity.processes(physical) if process.memory_bytes > 0]
    kinds = {(process.chip, process.capacity_bytes) for process in users}
    if len(kinds) != 1:
        return None
    chip, capacity_bytes = kinds.pop()
    try:
        figures = dict(vars(chips.load(chip)))
    except ChipError:  # described in a file of theirs
        figures = {}
    return _Kind(chip, figures.get("product_name") or chip, capacity_bytes, figures)


def _state(physical: int, kind: _Kind) -> DeviceState:
    from torch_loom.device._core.properties import uuid_of
    from torch_loom.device.telemetry import Simulated, activity, percent

    found = activity.processes(physical)
    kernels, all_use = activity.busy_share(physical)
    simulated = Simulated(kind.chip, kind.figures, kernels)

    def knows(figure: str) -> bool:
        return bool(kind.figures.get(figure))

    return DeviceState(
        index=physical,
        name=kind.name,
        uuid=f"GPU-{uuid_of(physical)}",
        memory_used_bytes=sum(process.memory_bytes for process in found),
        memory_total_bytes=kind.total_bytes,
        utilization_percent=percent(kernels),
        memory_utilization_percent=percent(all_use),
        power_milliwatts=simulated.power_milliwatts() if knows("power_max_watts") else None,
        power_limit_milliwatts=round(1000 * kind.figures.get("power_max_watts", 0)) or None,
        temperature_celsius=simulated.temperature_celsius() if knows("temperature_max_celsius") else None,
        clock_mhz=simulated.clock_mhz() if knows("clock_mhz") else None,
        processes={process.pid: process.memory_bytes for process in found if process.memory_bytes > 0},
    )


def as_json(found: list[DeviceState]) -> str:
    """Return the states as JSON: an object with a list ``devices``."""
    return json.dumps({"devices": [asdict(state) for state in found]}, indent=2)


def _line(*cells: str) -> str:
    widths = (43, 22, 20)
    return "|" + "|".join(f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True)) + "|"


def _rule(character: str = "-") -> str:
    return "+" + "+".join(character * width for width in (45, 24, 22)) + "+"


def as_table(found: list[DeviceState], version: str) -> str:
    """Return the states in the layout that people know."""
    lines = ["+" + "-" * (_WIDTH + 2) + "+"]
    lines.append(f"| {'loom smi ' + version + '    virtual devices: no GPU':<{_WIDTH}} |")
    lines += [
        _rule(),
        _line("GPU  Name", "UUID", "GPU-Util"),
        _line("Temp   Pwr:Usage/Cap", "Memory-Usage", "Clock"),
    ]
    lines.append(_rule("="))
    for state in found:
        temperature = _or_none(state.temperature_celsius, "C")
        power = f"{_watts(state.power_milliwatts)} / {_watts(state.power_limit_milliwatts)}"
        memory = f"{state.memory_used_bytes // _MIB}MiB / {state.memory_total_bytes // _MIB}MiB"
        lines.append(
            _line(f"{state.index:>3}  {state.name}", state.uuid[:22], f"{state.utilization_percent}%")
        )
        lines.append(_line(f"{temperature:>4}   {power}", memory, _or_none(state.clock_mhz, "MHz")))
        lines.append(_rule())
    lines += ["", "+" + "-" * (_WIDTH + 2) + "+", f"| {'Processes:':<{_WIDTH}} |"]
    rows = [(state.index, pid, used) for state in found for pid, used in sorted(state.processes.items())]
    for index, pid, used in rows:
        lines.append(f"| {_process(index, pid, used):<{_WIDTH}.{_WIDTH}} |")
    if not rows:
        lines.append(f"| {'  No running processes found':<{_WIDTH}} |")
    return "\n".join([*lines, "+" + "-" * (_WIDTH + 2) + "+"])


def _process(index: int, pid: int, used_bytes: int) -> str:
    return f"GPU {index:>3}   PID {pid:>9}   {used_bytes // _MIB:>8}MiB   {_command(pid)}"


def _or_none(value: int | None, unit: str) -> str:
    return "N/A" if value is None else f"{value}{unit}"


def _watts(milliwatts: int | None) -> str:
    return "N/A" if milliwatts is None else f"{round(milliwatts / 1000)}W"


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            # Programs given by -c have lines, and the table has one for each process.
            return " ".join(file.read(200).replace(b"\0", b" ").decode(errors="replace").split())
    except OSError:
        return "?"  # it has ended, or is another user's


def run(is_json: bool, loop_seconds: float | None) -> None:
    """Print the states, once or again and again."""
    import torch_loom

    while True:
        found = states()
        text = as_json(found) if is_json else as_table(found, torch_loom.__version__)
        print(text, flush=True)
        if loop_seconds is None:
            return
        time.sleep(loop_seconds)

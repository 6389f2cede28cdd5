"""`loom smi`: devices, memory, utilisation and processes, in the layout of nvidia-smi."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

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

    Raises:
        ConfigurationError: a setting has a bad value.
    """
    import torch

    if not torch.loom.is_available():  # type: ignore[attr-defined]
        return []
    return [_state(index) for index in range(torch.loom.device_count())]  # type: ignore[attr-defined]


def _state(index: int) -> DeviceState:
    from torch_loom.device import devices, telemetry
    from torch_loom.device._core.first_use import _chip_figures
    from torch_loom.device.telemetry import activity

    properties = devices.get_device_properties(index)
    physical = properties.extra["physical_index"]
    assert isinstance(physical, int)
    figures = _chip_figures(index)
    found = activity.processes(physical)
    return DeviceState(
        index=physical,
        name=properties.name,
        uuid=f"GPU-{properties.uuid}",
        memory_used_bytes=sum(process.memory_bytes for process in found),
        memory_total_bytes=properties.total_memory,
        utilization_percent=telemetry.utilization(index),
        memory_utilization_percent=telemetry.memory_usage(index),
        power_milliwatts=telemetry.power_draw(index) if figures["power_max_watts"] else None,
        power_limit_milliwatts=round(1000 * figures["power_max_watts"]) or None,
        temperature_celsius=telemetry.temperature(index) if figures["temperature_max_celsius"] else None,
        clock_mhz=telemetry.clock_rate(index) if figures["clock_mhz"] else None,
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

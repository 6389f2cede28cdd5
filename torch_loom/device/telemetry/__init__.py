"""How busy the devices are, and what that costs.

Utilisation and memory are measured, over all processes of this user that name the same machine
(``TORCH_LOOM_MACHINE``); a device is the same for all of them if its physical index is, whatever chip each
takes it for. Power, temperature and clock are simulated: they follow utilisation between figures of the chip.
A capacity is each process's own: others lessen neither ``mem_get_info`` nor what can be allocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch.types import Device

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE, _existing_index
from torch_loom.device._core.first_use import _chip_figures, driver_memory_bytes
from torch_loom.device.telemetry import activity
from torch_loom.errors import ChipError

__all__ = [
    "clock_rate",
    "device_memory_used",
    "list_gpu_processes",
    "memory_usage",
    "power_draw",
    "temperature",
    "utilization",
]

_MIB = 1 << 20
_NOWHERE = -1


@dataclass(frozen=True)
class Simulated:
    """What a device of a chip draws, how warm it is and how fast its clock runs, by how busy it is.

    Attributes:
        chip: its name.
        figures: its description's, by name; 0: not known.
        share: for which share of the last second kernels ran, 0 … 1.
    """

    chip: str
    figures: Mapping[str, float]
    share: float

    def power_milliwatts(self) -> int:
        """Return what it draws: between idle and highest power.

        Raises:
            ChipError: the description has no such figure; so for the others.
        """
        return round(1000 * self._between("power_idle_watts", "power_max_watts"))

    def temperature_celsius(self) -> int:
        """Return its temperature: between the idle and the highest temperature."""
        return round(self._between("temperature_idle_celsius", "temperature_max_celsius"))

    def clock_mhz(self) -> int:
        """Return its clock: the highest if a kernel ran, else the idle clock."""
        return int(self._figure("clock_mhz" if self.share > 0 else "clock_idle_mhz"))

    def _between(self, low: str, high: str) -> float:
        least = self._figure(low)
        return least + (self._figure(high) - least) * self.share

    def _figure(self, name: str) -> float:
        value = self.figures[name]
        if not value:
            raise ChipError(
                f"The chip {self.chip!r} has no {name!r} in its description; add it to a description "
                "of your own (TORCH_LOOM_CHIP=path.toml)"
            )
        return value


def utilization(device: Device = None) -> int:
    """Return for how many percent of the last second kernels ran on a device, in any process. Measured.

    Streams that are busy at the same time count once; how much they overlapped within some 20 ms is
    estimated. Graphs and fills count as kernels, copies do not. A driver that executes nothing is never busy.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return percent(activity.busy_share(_physical_index(device))[0])


def memory_usage(device: Device = None) -> int:
    """Return for how many percent of the last second device memory was read or written, in any process.

    Derived from what was measured: a copy uses memory while it runs, and so does a kernel, which reads its
    operands and writes its results. It is therefore at least :func:`utilization`.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return percent(activity.busy_share(_physical_index(device))[1])


def power_draw(device: Device = None) -> int:
    """Return what a device draws, in milliwatts. Simulated: between the chip's idle and highest power, in
    proportion to :func:`utilization`.

    Args:
        device: which one; the current one if None.

    Raises:
        ChipError: the chip's description does not say what it draws.
        InvalidDeviceError: there is no such device.
    """
    return Simulated(*_figures_and_share(device)).power_milliwatts()


def temperature(device: Device = None) -> int:
    """Return the temperature of a device in degrees Celsius. Simulated: from the chip's idle temperature to
    its highest, it follows :func:`power_draw` at once.

    Args:
        device: which one; the current one if None.

    Raises:
        ChipError: the chip's description does not give its temperatures.
        InvalidDeviceError: there is no such device.
    """
    return Simulated(*_figures_and_share(device)).temperature_celsius()


def clock_rate(device: Device = None) -> int:
    """Return the core clock of a device in MHz, as in PyTorch 2.13 (older pages say Hz).

    Simulated: the chip's highest clock if a kernel ran in the last second, else its idle clock.

    Args:
        device: which one; the current one if None.

    Raises:
        ChipError: the chip's description does not give its clocks.
        InvalidDeviceError: there is no such device.
    """
    return Simulated(*_figures_and_share(device)).clock_mhz()


def device_memory_used(device: Device = None) -> int:
    """Return the bytes of a device's memory that its driver and all processes have taken, cached ones too.

    The sum can be above the capacity: that is each process's own.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    if _C.world():
        free_bytes, total_bytes = _C.mem_get_info(_existing_index(device))
        return total_bytes - free_bytes
    used = sum(process.memory_bytes for process in activity.processes(_physical_index(device)))
    return used + driver_memory_bytes(_existing_index(device))


def list_gpu_processes(device: Device = None) -> str:
    """Return a text with a line for each process that has taken memory of a device: its id, and how much.

    The first line names the device by its physical index. A process that gives all of its memory back
    (:func:`torch.loom.empty_cache`) is no longer listed, unless the chip's context takes some. MB means 2²⁰
    bytes, as in PyTorch.

    Args:
        device: which one; the current one if None.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    physical = _physical_index(device)
    users = [process for process in activity.processes(physical) if process.memory_bytes > 0]
    lines = [f"{DEVICE_TYPE.upper()}:{physical}"]
    lines += [
        f"process {user.pid:>10d} uses {user.memory_bytes / _MIB:>12.3f} MB {DEVICE_TYPE} memory"
        for user in users
    ]
    return "\n".join(lines if users else [*lines, "no processes are running"])


def _physical_index(device: Device) -> int:
    index = _existing_index(device)
    if _C.world():
        return _NOWHERE  # a dry run's devices do nothing, and no process shares them
    physical = _C.device_properties(index)["physical_index"]
    assert isinstance(physical, int)
    return physical


def _figures_and_share(device: Device) -> tuple[str, Mapping[str, float], float]:
    index = _existing_index(device)
    share = activity.busy_share(_physical_index(index))[0]
    return _C.chip(index).name, _chip_figures(index), share


def percent(share: float) -> int:
    # What ran at all is not 0.
    return min(100, max(round(100 * share), 1 if share > 0 else 0))

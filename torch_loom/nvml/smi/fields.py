"""The fields of `--query-gpu` and its like: names, units and spelling are NVIDIA's.

What a field means is in NVIDIA's manual page of nvidia-smi.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_loom.nvml import client as nvml
from torch_loom.nvml.smi.devices import IDLE_REASON, Device, mib, timestamp

# Of what is asked: a device, or a device and one of its processes.
Subject = Any
Read = Callable[[Subject], object]
ABSENT = "[N/A]"


class Field:
    """One column: its name, its unit, and how its value is found; None is what the device does not have."""

    def __init__(self, name: str, unit: str, read: Read) -> None:
        self.name, self.unit, self.read = name, unit, read

    def header(self) -> str:
        """Return the column's title."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def value(self, subject: Subject, with_unit: bool) -> str:
        """Return the column's text for a device or a process."""
        value = self.read(subject)
        if value is None:
            return ABSENT
        return f"{value} {self.unit}" if self.unit and with_unit else str(value)


def _asked(function: Callable[..., Any], *arguments: int) -> Read:
    return lambda device: device.ask(function, *arguments)


def _part(function: Callable[..., Any], place: int) -> Read:
    def read(device: Device) -> object:
        found = device.ask(function)
        return None if found is None else found[place]

    return read


def _named(read: Read, words: Mapping[int, str]) -> Read:
    def named(device: Device) -> object:
        value: Any = read(device)
        return None if value is None else words.get(value, str(value))

    return named


def _watts(read: Read) -> Read:
    def watts(device: Device) -> object:
        value: Any = read(device)
        return None if value is None else f"{value / 1000:.2f}"

    return watts


def _memory(name: str) -> Read:
    return lambda device: mib(getattr(device.memory, name))


def _busy(name: str) -> Read:
    return lambda device: getattr(nvml.nvmlDeviceGetUtilizationRates(device.handle), name)


def _reason(bit: int) -> Read:
    def read(device: Device) -> str:
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(device.handle)
        return "Active" if reasons & bit else "Not Active"

    return read


def _hex(function: Callable[..., Any]) -> Read:
    return lambda device: f"0x{device.ask(function):016X}"


def _nothing(_: Subject) -> None:
    return None


_SWITCH = {0: "Disabled", 1: "Enabled"}
_YES = {0: "No", 1: "Yes"}
_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_REASONS = {
    "gpu_idle": IDLE_REASON,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
_CLOCKS = {"graphics": ("gr", 0), "sm": ("sm", 1), "memory": ("mem", 2), "video": ("video", 3)}
_ECC_PLACES = (
    *(
        "device_memory",
        "dram",
        "register_file",
        "l1_cache",
        "l2_cache",
        "texture_memory",
        "cbu",
        "sram",
        "total",
    ),
)

# By all names; of several the first is the title.
GPU: dict[str, Field] = {}


def _add(names: str, read: Read, unit: str = "") -> None:
    all_names = names.split()
    GPU.update(dict.fromkeys(all_names, Field(all_names[0], unit, read)))


_add("timestamp", lambda _: timestamp())
_add("driver_version", lambda _: nvml.nvmlSystemGetDriverVersion())
_add("count", lambda _: nvml.nvmlDeviceGetCount())
_add("name gpu_name", lambda device: device.name)
_add("serial gpu_serial", _nothing)
_add("uuid gpu_uuid", lambda device: device.uuid)
_add("pci.bus_id gpu_bus_id", lambda device: device.bus_id)
_add("pci.domain", lambda device: f"0x{device.pci.domain:04X}")
_add("pci.bus", lambda device: f"0x{device.pci.bus:02X}")
_add("pci.device", lambda device: f"0x{device.pci.device:02X}")
_add("pci.baseClass", lambda _: "0x3")
_add("pci.subClass", lambda _: "0x2")
_add("pci.device_id", lambda device: f"0x{device.pci.pciDeviceId:08X}")
_add("pci.sub_device_id", lambda device: f"0x{device.pci.pciSubSystemId:08X}")
for _name in ("current", "gpucurrent"):
    _add(f"pcie.link.gen.{_name}", _asked(nvml.nvmlDeviceGetCurrPcieLinkGeneration))
for _name in ("max", "gpumax", "hostmax"):
    _add(f"pcie.link.gen.{_name}", _asked(nvml.nvmlDeviceGetMaxPcieLinkGeneration))
_add("pcie.link.width.current", _asked(nvml.nvmlDeviceGetCurrPcieLinkWidth))
_add("pcie.link.width.max", _asked(nvml.nvmlDeviceGetMaxPcieLinkWidth))
_add("index", lambda device: device.index)
_add("display_mode", lambda _: "Disabled")
_add("display_attached", lambda _: "No")
_add("display_active", lambda _: "Disabled")
_add("persistence_mode", _named(_asked(nvml.nvmlDeviceGetPersistenceMode), _SWITCH))
_add("addressing_mode", lambda _: "None")
_add("accounting.mode", lambda _: "Disabled")
_add("accounting.buffer_size", _nothing)
_add("driver_model.current", _nothing)
_add("driver_model.pending", _nothing)
_add("vbios_version", _nothing)
_add("inforom.img inforom.image", _nothing)
_add("inforom.oem", _nothing)
_add("inforom.ecc", _nothing)
_add("inforom.pwr inforom.power", _nothing)
_add("reset_status.reset_required", lambda _: "No")
_add("reset_status.drain_and_reset_recommended", lambda _: "No")
_add("gpu_recovery_action", lambda _: "None")
_add("gom.current gpu_operation_mode.current", _nothing)
_add("gom.pending gpu_operation_mode.pending", _nothing)
_add("fan.speed", _asked(nvml.nvmlDeviceGetFanSpeed), "%")
_add("pstate", lambda device: f"P{nvml.nvmlDeviceGetPerformanceState(device.handle)}")
for _name, _read in (
    ("supported", _hex(nvml.nvmlDeviceGetSupportedClocksEventReasons)),
    ("active", _hex(nvml.nvmlDeviceGetCurrentClocksEventReasons)),
    *((_name, _reason(_bit)) for _name, _bit in _REASONS.items()),
):
    _add(f"clocks_event_reasons.{_name} clocks_throttle_reasons.{_name}", _read)
for _name in (
    "sw_power_cap",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
):
    _add(f"clocks_event_reasons_counters.{_name}", lambda _: 0, "us")
_add("memory.total", _memory("total"), "MiB")
_add("memory.reserved", _memory("reserved"), "MiB")
_add("memory.used", _memory("used"), "MiB")
_add("memory.free", _memory("free"), "MiB")
_add("compute_mode", _named(_asked(nvml.nvmlDeviceGetComputeMode), _COMPUTE_MODES))
_add("compute_cap", lambda device: device.capability)
_add("utilization.gpu", _busy("gpu"), "%")
_add("utilization.memory", _busy("memory"), "%")
for _name in ("encoder", "decoder", "jpeg", "ofa"):
    _add(f"utilization.{_name}", lambda _: 0, "%")
for _name in ("sessionCount", "averageFps", "averageLatency"):
    _add(f"encoder.stats.{_name}", lambda _: 0)
_add("dramEncryption.mode.current", _nothing)
_add("dramEncryption.mode.pending", _nothing)
_add("ecc.mode.current", _named(_part(nvml.nvmlDeviceGetEccMode, 0), _SWITCH))
_add("ecc.mode.pending", _named(_part(nvml.nvmlDeviceGetEccMode, 1), _SWITCH))
for _kind in ("corrected", "uncorrected"):
    for _time in ("volatile", "aggregate"):
        for _place in _ECC_PLACES:
            _add(f"ecc.errors.{_kind}.{_time}.{_place}", _asked(nvml.nvmlDeviceGetTotalEccErrors, 0, 0))
_add("retired_pages.single_bit_ecc.count retired_pages.sbe", _nothing)
_add("retired_pages.double_bit.count retired_pages.dbe", _nothing)
_add("retired_pages.pending", _nothing)
_add("remapped_rows.correctable", _part(nvml.nvmlDeviceGetRemappedRows, 0))
_add("remapped_rows.uncorrectable", _part(nvml.nvmlDeviceGetRemappedRows, 1))
_add("remapped_rows.pending", _named(_part(nvml.nvmlDeviceGetRemappedRows, 2), _YES))
_add("remapped_rows.failure", _named(_part(nvml.nvmlDeviceGetRemappedRows, 3), _YES))
_add("temperature.gpu", _asked(nvml.nvmlDeviceGetTemperature))
_add("temperature.gpu.tlimit", _nothing)
_add("temperature.memory", lambda _: "N/A")
_add(
    "power.management", lambda device: None if device.ask(nvml.nvmlDeviceGetPowerUsage) is None else "Enabled"
)
for _name in ("power.draw", "power.draw.average", "power.draw.instant"):
    _add(_name, _watts(_asked(nvml.nvmlDeviceGetPowerUsage)), "W")
_add("power.limit", _watts(_asked(nvml.nvmlDeviceGetPowerManagementLimit)), "W")
_add("enforced.power.limit", _watts(_asked(nvml.nvmlDeviceGetEnforcedPowerLimit)), "W")
_add("power.default_limit", _watts(_asked(nvml.nvmlDeviceGetPowerManagementDefaultLimit)), "W")
_add("power.min_limit", _watts(_part(nvml.nvmlDeviceGetPowerManagementLimitConstraints, 0)), "W")
_add("power.max_limit", _watts(_part(nvml.nvmlDeviceGetPowerManagementLimitConstraints, 1)), "W")
for _name, (_short, _number) in _CLOCKS.items():
    _add(f"clocks.current.{_name} clocks.{_short}", _asked(nvml.nvmlDeviceGetClockInfo, _number), "MHz")
for _name in ("graphics", "memory"):
    _short, _number = _CLOCKS[_name]
    _add(
        f"clocks.applications.{_name} clocks.applications.{_short}",
        _asked(nvml.nvmlDeviceGetApplicationsClock, _number),
        "MHz",
    )
    _add(
        f"clocks.default_applications.{_name} clocks.default_applications.{_short}",
        _asked(nvml.nvmlDeviceGetDefaultApplicationsClock, _number),
        "MHz",
    )
for _name in ("graphics", "sm", "memory"):
    _short, _number = _CLOCKS[_name]
    _add(f"clocks.max.{_name} clocks.max.{_short}", _asked(nvml.nvmlDeviceGetMaxClockInfo, _number), "MHz")
_add("mig.mode.current", _named(_part(nvml.nvmlDeviceGetMigMode, 0), _SWITCH))
_add("mig.mode.pending", _named(_part(nvml.nvmlDeviceGetMigMode, 1), _SWITCH))
_add("gsp.mode.current", _nothing)
_add("gsp.mode.default", _nothing)
_add("c2c.mode", _nothing)
for _name in ("total", "used", "free"):
    _add(f"protected_memory.{_name}", lambda _: 0, "MiB")
_add("fabric.state", _nothing)
_add("fabric.status", _nothing)


def _of_device(name: str) -> Read:
    return lambda process: GPU[name].read(process[0])


_DEVICE_OF_PROCESS = {
    name: Field(name, "", _of_device(name))
    for name in ("timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid")
}


def _with_device(*fields: tuple[str, str, Read]) -> dict[str, Field]:
    """Return fields by all their names, and those that say which device it is."""
    found = dict(_DEVICE_OF_PROCESS)
    for names, unit, read in fields:
        all_names = names.split()
        found.update(dict.fromkeys(all_names, Field(all_names[0], unit, read)))
    return found


# The subject is a device, and of one process its id, its program and its memory.
COMPUTE_APPS = _with_device(
    ("pid", "", lambda process: process[1]),
    ("process_name name", "", lambda process: process[2]),
    ("used_gpu_memory used_memory", "MiB", lambda process: mib(process[3])),
)
# The subject is a device, a clock of its memory and one of its cores.
SUPPORTED_CLOCKS = _with_device(
    ("memory mem", "MHz", lambda clocks: clocks[1]), ("graphics gr", "MHz", lambda clocks: clocks[2])
)
# There are none of these, but their fields are known.
ACCOUNTED_APPS = _with_device(
    ("pid", "", _nothing),
    ("gpu_utilization gpu_util", "%", _nothing),
    ("mem_utilization mem_util", "%", _nothing),
    ("max_memory_usage max_memory", "MiB", _nothing),
    ("time", "ms", _nothing),
)
RETIRED_PAGES = _with_device(
    *((f"retired_pages.{name}", "", _nothing) for name in ("address", "timestamp", "cause"))
)
_ROWS = ("correctable", "uncorrectable", "pending", "failure")
REMAPPED_ROWS = _with_device(
    *((f"remapped_rows.{name}", "", _of_device(f"remapped_rows.{name}")) for name in _ROWS)
)


def _rows_of_clocks(device: Device) -> list[Subject]:
    memory = device.ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM)
    clocks = [] if memory is None else device.ask(nvml.nvmlDeviceGetSupportedGraphicsClocks, memory) or []
    return [(device, memory, clock) for clock in clocks]


# Of each query its fields, and the subjects of a device.
QUERIES: dict[str, tuple[Mapping[str, Field], Callable[[Device], list[Subject]]]] = {
    "gpu": (GPU, lambda device: [device]),
    "compute-apps": (COMPUTE_APPS, lambda device: [(device, *each) for each in device.processes()]),
    "supported-clocks": (SUPPORTED_CLOCKS, _rows_of_clocks),
    "accounted-apps": (ACCOUNTED_APPS, lambda _: []),
    "retired-pages": (RETIRED_PAGES, lambda _: []),
    "remapped-rows": (REMAPPED_ROWS, lambda device: [(device,)]),
}

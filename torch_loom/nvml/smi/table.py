"""The table that the command prints without options, and the lists of `-L` and `topo -m`."""

from __future__ import annotations

from collections.abc import Sequence

from torch_loom.nvml import client as nvml
from torch_loom.nvml.smi.devices import Device, ctime, cuda_version, mib, processors

_RULE = "+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+"
_WHOLE = "+" + "-" * 89 + "+"


def as_table(devices: Sequence[Device]) -> str:
    """Return the summary: a block for each device, and the processes."""
    driver = nvml.nvmlSystemGetDriverVersion()
    title = f" NVIDIA-SMI {driver:<23}Driver Version: {driver:<15}CUDA Version: {cuda_version():<9}"
    lines = [
        f"{ctime()}       ",
        _WHOLE,
        f"|{title}|",
        _RULE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        _RULE.replace("-", "=").replace("+", "|", 1)[:-1] + "|",
    ]
    for device in devices:
        lines += [*_block(device), _RULE]
    lines += [
        "",
        _WHOLE,
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|" + "=" * 89 + "|",
    ]
    rows = [_process(device.index, *each) for device in devices for each in device.processes()]
    lines += rows or [
        "|  No running processes found                                                             |"
    ]
    return "\n".join([*lines, _WHOLE])


def _block(device: Device) -> list[str]:
    persistence = "On" if device.ask(nvml.nvmlDeviceGetPersistenceMode) else "Off"
    errors = _or_none(device.ask(nvml.nvmlDeviceGetTotalEccErrors, 0, 0))
    fan = _or_none(device.ask(nvml.nvmlDeviceGetFanSpeed), "%")
    temperature = _or_none(device.ask(nvml.nvmlDeviceGetTemperature), "C")
    state = f"P{device.ask(nvml.nvmlDeviceGetPerformanceState)}"
    usage = _watts(device.ask(nvml.nvmlDeviceGetPowerUsage))
    limit = _watts(device.ask(nvml.nvmlDeviceGetEnforcedPowerLimit))
    memory = device.memory
    used, total = f"{mib(memory.used)}MiB", f"{mib(memory.total)}MiB"
    busy = f"{nvml.nvmlDeviceGetUtilizationRates(device.handle).gpu}%"
    mig = device.ask(nvml.nvmlDeviceGetMigMode)
    mode = "N/A" if mig is None else "Enabled" if mig[0] else "Disabled"
    return [
        f"|{device.index:>4}  {device.name:<31.31}{persistence:<4}|{device.bus_id:>19} Off |{errors:>21} |",
        f"| {fan:>3}  {temperature:>4}    {state:<3}{usage:>15} / {limit:>5} |{used:>11} / {total:>9} |"
        f"{busy:>8}  {'Default':>11} |",
        f"|{'':41}|{'':24}|{mode:>21} |",
    ]


def _process(index: int, pid: int, program: str, used_bytes: int) -> str:
    width = 36
    name = program if len(program) <= width else "..." + program[3 - width :]
    return f"|{index:>5}   N/A  N/A{pid:>16}      C   {name:<{width}}{f'{mib(used_bytes)}MiB':>10} |"


def _or_none(value: object, unit: str = "") -> str:
    return "N/A" if value is None else f"{value}{unit}"


def _watts(milliwatts: int | None) -> str:
    return "N/A" if milliwatts is None else f"{round(milliwatts / 1000)}W"


def as_list(devices: Sequence[Device]) -> str:
    """Return a line for each device: its index, name and identifier."""
    return "\n".join(f"GPU {each.index}: {each.name} (UUID: {each.uuid})" for each in devices)


def as_topology(devices: Sequence[Device]) -> str:
    """Return how the devices are connected, as a matrix."""
    links = {each.index: _num_links(each) for each in devices}

    def connection(item: Device, other: Device) -> str:
        if item.index == other.index:
            return " X "
        count = min(links[item.index], links[other.index])
        return f"NV{count}" if count else "NODE"

    names = [f"GPU{each.index}" for each in devices]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for name, item in zip(names, devices, strict=True):
        cells = [name, *(connection(item, other) for other in devices), processors(), "0", "", "N/A"]
        lines.append("\t".join(cells))
    legend = (
        ("X", "Self"),
        ("NODE", "Connection over PCIe and between its host bridges within a NUMA node"),
        ("NV#", "Connection over a bonded set of # NVLinks"),
    )
    return "\n".join([*lines, "", "Legend:", "", *(f"  {sign:<4} = {words}" for sign, words in legend)])


def _num_links(device: Device) -> int:
    count = 0
    while count < 18 and device.ask(nvml.nvmlDeviceGetNvLinkState, count):
        count += 1
    return count

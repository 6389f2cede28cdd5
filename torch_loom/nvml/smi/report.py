"""All that is known of the devices, as `-q` prints it: text, or with `-x` XML.

One tree for both. Names and order are those of NVIDIA's reports of driver 580.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch_loom.nvml import client as nvml
from torch_loom.nvml.smi.devices import Device, ctime, cuda_version
from torch_loom.nvml.smi.fields import ABSENT, GPU

# A tag of XML, a label of the text, and a text or the nodes below it.
Node = tuple[str, str, Any]
_NONE = "N/A"
_WIDTH = 55
# What `-d` selects, by the tags of the nodes.
SECTIONS = {
    "MEMORY": ("fb_memory_usage", "bar1_memory_usage", "cc_protected_memory_usage"),
    "UTILIZATION": ("utilization", "encoder_stats"),
    "ECC": ("ecc_mode", "ecc_errors"),
    "TEMPERATURE": ("temperature",),
    "POWER": ("gpu_power_readings",),
    "CLOCK": ("clocks", "applications_clocks", "default_applications_clocks", "max_clocks"),
    "COMPUTE": ("compute_mode",),
    "PIDS": ("processes",),
    "PERFORMANCE": ("performance_state", "clocks_event_reasons"),
    "ROW_REMAPPER": ("remapped_rows",),
    "SUPPORTED_CLOCKS": ("supported_clocks",),
    "ACCOUNTING": ("accounting_mode", "accounting_mode_buffer_size"),
    "PAGE_RETIREMENT": (),
    "ENCODER_STATS": ("encoder_stats",),
    "VOLTAGE": (),
}


def _value(device: Device, field: str, unit: bool = True) -> str:
    text = GPU[field].value(device, unit)
    return _NONE if text == ABSENT else text


def _nodes(device: Device) -> list[Node]:
    """Return the tree of a device."""

    def of(field: str) -> str:
        return _value(device, field)

    identity: list[Node] = [
        ("product_name", "Product Name", device.name),
        ("product_brand", "Product Brand", device.brand or _NONE),
        ("product_architecture", "Product Architecture", device.architecture or _NONE),
        ("display_mode", "Display Mode", of("display_mode")),
        ("display_attached", "Display Attached", of("display_attached")),
        ("display_active", "Display Active", of("display_active")),
        ("persistence_mode", "Persistence Mode", of("persistence_mode")),
        ("addressing_mode", "Addressing Mode", of("addressing_mode")),
        (
            "mig_mode",
            "MIG Mode",
            [
                ("current_mig", "Current", of("mig.mode.current")),
                ("pending_mig", "Pending", of("mig.mode.pending")),
            ],
        ),
        ("mig_devices", "", "None"),
        ("accounting_mode", "Accounting Mode", of("accounting.mode")),
        ("accounting_mode_buffer_size", "Accounting Mode Buffer Size", of("accounting.buffer_size")),
        (
            "driver_model",
            "Driver Model",
            [("current_dm", "Current", _NONE), ("pending_dm", "Pending", _NONE)],
        ),
        ("serial", "Serial Number", of("serial")),
        ("uuid", "GPU UUID", device.uuid),
        ("minor_number", "Minor Number", str(nvml.nvmlDeviceGetMinorNumber(device.handle))),
        ("vbios_version", "VBIOS Version", of("vbios_version")),
        ("multigpu_board", "MultiGPU Board", "No"),
        ("board_id", "Board ID", f"0x{nvml.nvmlDeviceGetBoardId(device.handle):x}"),
        ("board_part_number", "Board Part Number", _NONE),
        ("gpu_part_number", "GPU Part Number", _NONE),
        (
            "gpu_virtualization_mode",
            "GPU Virtualization Mode",
            [
                ("virtualization_mode", "Virtualization Mode", "None"),
                ("host_vgpu_mode", "Host VGPU Mode", _NONE),
            ],
        ),
        ("gpu_recovery_action", "GPU Recovery Action", "None"),
        ("gsp_firmware_version", "GSP Firmware Version", _NONE),
    ]
    return [*identity, _pci(device), *_state(device), *_gauges(device), _processes(device)]


def _pci(device: Device) -> Node:
    def of(field: str) -> str:
        return _value(device, field)

    generations: list[Node] = [
        ("max_link_gen", "Max", of("pcie.link.gen.max")),
        ("current_link_gen", "Current", of("pcie.link.gen.current")),
        ("device_current_link_gen", "Device Current", of("pcie.link.gen.gpucurrent")),
        ("max_device_link_gen", "Device Max", of("pcie.link.gen.gpumax")),
        ("max_host_link_gen", "Host Max", of("pcie.link.gen.hostmax")),
    ]
    widths: list[Node] = [
        ("max_link_width", "Max", f"{of('pcie.link.width.max')}x"),
        ("current_link_width", "Current", f"{of('pcie.link.width.current')}x"),
    ]
    return (
        "pci",
        "PCI",
        [
            ("pci_bus", "Bus", of("pci.bus")),
            ("pci_device", "Device", of("pci.device")),
            ("pci_domain", "Domain", of("pci.domain")),
            ("pci_base_class", "Base Classcode", of("pci.baseClass")),
            ("pci_sub_class", "Sub Classcode", of("pci.subClass")),
            ("pci_device_id", "Device Id", of("pci.device_id")),
            ("pci_bus_id", "Bus Id", of("pci.bus_id")),
            ("pci_sub_system_id", "Sub System Id", of("pci.sub_device_id")),
            (
                "pci_gpu_link_info",
                "GPU Link Info",
                [("pcie_gen", "PCIe Generation", generations), ("link_widths", "Link Width", widths)],
            ),
            (
                "pci_bridge_chip",
                "Bridge Chip",
                [("bridge_chip_type", "Type", _NONE), ("bridge_chip_fw", "Firmware", _NONE)],
            ),
            ("replay_counter", "Replays Since Reset", str(device.ask(nvml.nvmlDeviceGetPcieReplayCounter))),
            ("replay_rollover_counter", "Replay Number Rollovers", "0"),
            ("tx_util", "Tx Throughput", _NONE),
            ("rx_util", "Rx Throughput", _NONE),
        ],
    )


_REASONS = (
    ("gpu_idle", "Idle"),
    ("applications_clocks_setting", "Applications Clocks Setting"),
    ("sw_power_cap", "SW Power Cap"),
    ("hw_slowdown", "HW Slowdown"),
    ("hw_thermal_slowdown", "HW Thermal Slowdown"),
    ("hw_power_brake_slowdown", "HW Power Brake Slowdown"),
    ("sync_boost", "Sync Boost"),
    ("sw_thermal_slowdown", "SW Thermal Slowdown"),
)


def _state(device: Device) -> list[Node]:
    reasons = [
        (f"clocks_event_reason_{name}", label, _value(device, f"clocks_event_reasons.{name}"))
        for name, label in _REASONS
    ]
    return [
        ("fan_speed", "Fan Speed", _value(device, "fan.speed")),
        ("performance_state", "Performance State", _value(device, "pstate")),
        ("clocks_event_reasons", "Clocks Event Reasons", reasons),
    ]


def _group(device: Device, tag: str, label: str, *rows: tuple[str, str, str]) -> Node:
    """Return a node of fields: of each the tag, the label and the field's name."""
    return tag, label, [(name, words, _value(device, field)) for name, words, field in rows]


def _gauges(device: Device) -> list[Node]:
    window = nvml.nvmlDeviceGetBAR1MemoryInfo(device.handle)
    nothing = [(name, name.capitalize(), "0 MiB") for name in ("total", "used", "free")]
    stats = (
        ("session_count", "Active Sessions"),
        ("average_fps", "Average FPS"),
        ("average_latency", "Average Latency"),
    )
    return [
        _group(
            device,
            "fb_memory_usage",
            "FB Memory Usage",
            ("total", "Total", "memory.total"),
            ("reserved", "Reserved", "memory.reserved"),
            ("used", "Used", "memory.used"),
            ("free", "Free", "memory.free"),
        ),
        (
            "bar1_memory_usage",
            "BAR1 Memory Usage",
            [
                ("total", "Total", f"{window.bar1Total >> 20} MiB"),
                ("used", "Used", f"{window.bar1Used >> 20} MiB"),
                ("free", "Free", f"{window.bar1Free >> 20} MiB"),
            ],
        ),
        ("cc_protected_memory_usage", "Conf Compute Protected Memory Usage", nothing),
        ("compute_mode", "Compute Mode", _value(device, "compute_mode")),
        _group(
            device,
            "utilization",
            "Utilization",
            ("gpu_util", "GPU", "utilization.gpu"),
            ("memory_util", "Memory", "utilization.memory"),
            ("encoder_util", "Encoder", "utilization.encoder"),
            ("decoder_util", "Decoder", "utilization.decoder"),
            ("jpeg_util", "JPEG", "utilization.jpeg"),
            ("ofa_util", "OFA", "utilization.ofa"),
        ),
        ("encoder_stats", "Encoder Stats", [(tag, label, "0") for tag, label in stats]),
        ("fbc_stats", "FBC Stats", [(tag, label, "0") for tag, label in stats]),
        _group(
            device,
            "ecc_mode",
            "ECC Mode",
            ("current_ecc", "Current", "ecc.mode.current"),
            ("pending_ecc", "Pending", "ecc.mode.pending"),
        ),
        ("ecc_errors", "ECC Errors", [_errors(device, "volatile"), _errors(device, "aggregate")]),
        _group(
            device,
            "remapped_rows",
            "Remapped Rows",
            ("remapped_row_corr", "Correctable Error", "remapped_rows.correctable"),
            ("remapped_row_unc", "Uncorrectable Error", "remapped_rows.uncorrectable"),
            ("remapped_row_pending", "Pending", "remapped_rows.pending"),
            ("remapped_row_failure", "Remapping Failure Occurred", "remapped_rows.failure"),
        ),
        _temperatures(device),
        _group(
            device,
            "gpu_power_readings",
            "GPU Power Readings",
            ("average_power_draw", "Average Power Draw", "power.draw.average"),
            ("instant_power_draw", "Instantaneous Power Draw", "power.draw.instant"),
            ("current_power_limit", "Current Power Limit", "enforced.power.limit"),
            ("requested_power_limit", "Requested Power Limit", "power.limit"),
            ("default_power_limit", "Default Power Limit", "power.default_limit"),
            ("min_power_limit", "Min Power Limit", "power.min_limit"),
            ("max_power_limit", "Max Power Limit", "power.max_limit"),
        ),
        *_clocks(device),
    ]


def _errors(device: Device, period: str) -> Node:
    count = _value(device, f"ecc.errors.uncorrected.{period}.total")
    rows = (
        ("sram_correctable", "SRAM Correctable"),
        ("sram_uncorrectable_parity", "SRAM Uncorrectable Parity"),
        ("sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED"),
        ("dram_correctable", "DRAM Correctable"),
        ("dram_uncorrectable", "DRAM Uncorrectable"),
    )
    return period, period.capitalize(), [(tag, label, count) for tag, label in rows]


def _temperatures(device: Device) -> Node:
    def degrees(value: int | None) -> str:
        return _NONE if value is None else f"{value} C"

    limits = (
        ("gpu_temp_max_threshold", "GPU Shutdown Temp"),
        ("gpu_temp_slow_threshold", "GPU Slowdown Temp"),
        ("gpu_temp_max_mem_threshold", "Memory Max Operating Temp"),
        ("gpu_temp_max_gpu_threshold", "GPU Max Operating Temp"),
    )
    return (
        "temperature",
        "Temperature",
        [
            ("gpu_temp", "GPU Current Temp", degrees(device.ask(nvml.nvmlDeviceGetTemperature))),
            ("gpu_temp_tlimit", "GPU T.Limit Temp", _NONE),
            *(
                (tag, label, degrees(device.ask(nvml.nvmlDeviceGetTemperatureThreshold, kind)))
                for kind, (tag, label) in enumerate(limits)
            ),
            ("gpu_target_temperature", "GPU Target Temperature", _NONE),
            ("memory_temp", "Memory Current Temp", _NONE),
        ],
    )


def _clocks(device: Device) -> list[Node]:
    now = [
        ("graphics_clock", "Graphics", "graphics"),
        ("sm_clock", "SM", "sm"),
        ("mem_clock", "Memory", "memory"),
    ]
    chosen = [now[0], now[2]]

    def group(tag: str, label: str, rows: list[tuple[str, str, str]], fields: str) -> Node:
        return _group(device, tag, label, *((name, words, f"{fields}.{kind}") for name, words, kind in rows))

    return [
        group("clocks", "Clocks", [*now, ("video_clock", "Video", "video")], "clocks.current"),
        group("applications_clocks", "Applications Clocks", chosen, "clocks.applications"),
        group(
            "default_applications_clocks",
            "Default Applications Clocks",
            chosen,
            "clocks.default_applications",
        ),
        group("max_clocks", "Max Clocks", now, "clocks.max"),
    ]


def _processes(device: Device) -> Node:
    rows = [
        (
            "process_info",
            "",
            [
                ("gpu_instance_id", "GPU instance ID", _NONE),
                ("compute_instance_id", "Compute instance ID", _NONE),
                ("pid", "Process ID", str(pid)),
                ("type", "Type", "C"),
                ("process_name", "Name", program),
                ("used_memory", "Used GPU Memory", f"{used >> 20} MiB"),
            ],
        )
        for pid, program, used in device.processes()
    ]
    return "processes", "Processes", rows


def _chosen(device: Device, sections: Sequence[str]) -> list[Node]:
    tags = {tag for section in sections for tag in SECTIONS[section]}
    return [node for node in _nodes(device) if not sections or node[0] in tags]


def _head(count: int) -> list[Node]:
    return [
        ("timestamp", "Timestamp", ctime()),
        ("driver_version", "Driver Version", nvml.nvmlSystemGetDriverVersion()),
        ("cuda_version", "CUDA Version", cuda_version()),
        ("attached_gpus", "Attached GPUs", str(count)),
    ]


def as_text(devices: Sequence[Device], sections: Sequence[str] = ()) -> str:
    """Return the report as text; with sections (names of SECTIONS) only these."""
    head = list(_text(_head(nvml.nvmlDeviceGetCount()), 0))
    lines = ["", "==============NVSMI LOG==============", "", *head[:-1], "", head[-1]]
    for device in devices:
        lines += [f"GPU {device.bus_id}", *_text(_chosen(device, sections), 1), ""]
    return "\n".join(lines)


def _text(nodes: Sequence[Node], depth: int) -> Iterator[str]:
    for _, label, value in nodes:
        start = "    " * depth + label
        if isinstance(value, str):
            if label:
                yield f"{start:<{_WIDTH}}: {value}"
        elif not label:
            yield from _text(value, depth)
        elif value:
            yield start
            yield from _text(value, depth + 1)
        else:
            yield f"{start:<{_WIDTH}}: None"


def as_xml(devices: Sequence[Device], sections: Sequence[str] = ()) -> str:
    """Return the report as XML; with sections (names of SECTIONS) only these."""
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        *_xml(_head(nvml.nvmlDeviceGetCount()), 1),
    ]
    for device in devices:
        lines += [f'\t<gpu id="{device.bus_id}">', *_xml(_chosen(device, sections), 2), "\t</gpu>"]
    return "\n".join([*lines, "</nvidia_smi_log>"])


def _xml(nodes: Sequence[Node], depth: int) -> Iterator[str]:
    indent = "\t" * depth
    for tag, _, value in nodes:
        if isinstance(value, str):
            yield f"{indent}<{tag}>{_escaped(_bare(tag, value))}</{tag}>"
        else:
            yield f"{indent}<{tag}>"
            yield from _xml(value, depth + 1)
            yield f"{indent}</{tag}>"


def _escaped(text: str) -> str:
    # As xml.sax.saxutils does, whose import takes as long as the rest of the command.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _bare(tag: str, value: str) -> str:
    # NVIDIA writes these numbers as such in XML, and as hexadecimal ones in text.
    return value.removeprefix("0x") if tag.startswith("pci_") else value

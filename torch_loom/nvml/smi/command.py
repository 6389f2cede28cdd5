"""The options of the command, and what it prints and returns for each."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO

from torch_loom.nvml import client as nvml
from torch_loom.nvml.smi import report, table
from torch_loom.nvml.smi.devices import Device, cuda_version
from torch_loom.nvml.smi.fields import QUERIES

# NVIDIA's exit statuses.
INVALID_ARGUMENT, NOT_AVAILABLE, NOT_FOUND, NO_DRIVER = 2, 3, 6, 9
_ASK_HELP = "Please run 'nvidia-smi -h' for help."
_DEFAULT_LOOP_SECONDS = 5.0

HELP = """\
nvidia-smi of torch-loom: shows virtual devices as NVIDIA System Management Interface shows GPUs.

nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...

    -h,   --help                Print this text and exit.
          --version             Print the versions and exit.

  LIST OPTIONS:
    -L,   --list-gpus           Display a list of the devices.

  SUMMARY OPTIONS:
    <no arguments>              Show a summary of the devices.
    -i,   --id=                 Target devices, separated by commas: indices, UUIDs or PCI bus ids.
    -f,   --filename=           Write to a file instead of the terminal.
    -l,   --loop=               Print again every so many seconds, until Ctrl+C.

  QUERY OPTIONS:
    -q,   --query               Display all that is known.
    -x,   --xml-format          As XML.
    -d,   --display=            Only these parts, separated by commas:
                                {sections}
    -i, -f, -l                  As above.
    -lms, --loop-ms=            Print again every so many milliseconds, until Ctrl+C.

  SELECTIVE QUERY OPTIONS:
{queries}
    --format=                   csv, and separated by commas: noheader, nounits.
    --help-query-NAME           List the fields of a query, as --help-query-gpu.
    -i, -f, -l, -lms            As above.

  TOPOLOGY:
    topo -m                     Show how the devices are connected.

Settings of devices cannot be changed: these options of NVIDIA's end with exit status 3.
"""

# What changes a device, or watches what virtual devices do not have.
_UNAVAILABLE = frozenset(
    (
        *("-pm", "--persistence-mode", "-e", "--ecc-config", "-p"),
        *("--reset-ecc-errors", "-c", "--compute-mode", "--gom", "-r"),
        *("--gpu-reset", "-vm", "--virt-mode", "-lgc", "--lock-gpu-clocks"),
        *("-rgc", "--reset-gpu-clocks", "-lmc", "--lock-memory-clocks", "-rmc"),
        *("--reset-memory-clocks", "-ac", "--applications-clocks", "-rac", "--reset-applications-clocks"),
        *("-pl", "--power-limit", "-am", "--accounting-mode", "-caa"),
        *("--clear-accounted-apps", "-mig", "--multi-instance-gpu", "dmon", "pmon"),
        *("daemon", "replay", "nvlink", "clocks", "encodersessions"),
        *("fbcsessions", "drain", "vgpu", "mig", "compute-policy"),
        *("boost-slider", "power-hint", "base-clocks", "c2c", "conf-compute"),
        *("power-smoothing", "power-profiles", "prm", "gpm", "pci"),
    )
)


class RefusedError(Exception):
    """A message for standard output, and the exit status."""

    def __init__(self, message: str, status: int = INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.status = status


class Options:
    """What was asked for."""

    def __init__(self) -> None:
        self.is_list = self.is_report = self.is_xml = False
        self.ids: str | None = None
        self.file: str | None = None
        self.loop_seconds: float | None = None
        self.sections: list[str] = []
        self.query: str | None = None
        self.columns: list[str] = []
        self.format: list[str] | None = None


# Options with a value, by all spellings.
_VALUED = {
    "-i": "id",
    "--id": "id",
    "-f": "file",
    "--filename": "file",
    "-l": "loop",
    "--loop": "loop",
    "-lms": "loop_ms",
    "--loop-ms": "loop_ms",
    "-d": "display",
    "--display": "display",
    "--format": "format",
    **{f"--query-{name}": f"query {name}" for name in QUERIES},
}
_FLAGS = {
    "-L": "is_list",
    "--list-gpus": "is_list",
    "-q": "is_report",
    "--query": "is_report",
    "-x": "is_xml",
    "--xml-format": "is_xml",
}


def parse(arguments: Sequence[str]) -> Options:
    """Return what the arguments ask for.

    Raises:
        RefusedError: an option is unknown, or its value is missing or bad.
    """
    options, rest = Options(), list(arguments)
    while rest:
        name, mark, value = rest.pop(0).partition("=")
        if name in _FLAGS and not mark:
            setattr(options, _FLAGS[name], True)
        elif name in _VALUED:
            if not mark and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            if not value and _VALUED[name] != "loop":
                raise RefusedError(f"ERROR: Option {name} is missing its value. {_ASK_HELP}")
            _take(options, _VALUED[name], value)
        elif name in _UNAVAILABLE:
            raise RefusedError(
                f"{name} is not available: the devices are virtual, and have nothing of the kind.",
                NOT_AVAILABLE,
            )
        else:
            raise RefusedError(f"ERROR: Option {name}{mark}{value} is not recognized. {_ASK_HELP}")
    if options.query is not None and options.format is None:
        raise RefusedError(f'"--format=" switch is missing. {_ASK_HELP}')
    if options.query is None and options.format is not None:
        raise RefusedError(f"Invalid combination of input arguments. {_ASK_HELP}")
    return options


def _take(options: Options, name: str, value: str) -> None:
    if name == "id":
        options.ids = value
    elif name == "file":
        options.file = value
    elif name in ("loop", "loop_ms"):
        options.loop_seconds = _seconds(value, 1.0 if name == "loop" else 1e-3)
    elif name == "display":
        options.sections = [part.strip().upper() for part in value.split(",")]
        for section in options.sections:
            if section not in report.SECTIONS:
                raise RefusedError(f'"{section}" is not a valid argument for the "-d" switch. {_ASK_HELP}')
    elif name == "format":
        options.format = [part.strip() for part in value.split(",")]
        if "csv" not in options.format or set(options.format) - {"csv", "noheader", "nounits"}:
            raise RefusedError(f'"{value}" is not a valid argument for the "--format=" switch. {_ASK_HELP}')
    else:
        if options.query is not None:
            raise RefusedError("Only one --query-* switch can be used at a time.")
        options.query = name.split()[1]
        options.columns = [part.strip() for part in value.split(",")]
        fields = QUERIES[options.query][0]
        for column in options.columns:
            if column not in fields:
                raise RefusedError(f'Field "{column}" is not a valid field to query.\n')


def _seconds(value: str, unit_seconds: float) -> float:
    if not value:
        return _DEFAULT_LOOP_SECONDS
    if not value.isdecimal() or int(value) == 0:
        raise RefusedError(f'"{value}" is not a valid loop interval. {_ASK_HELP}')
    return int(value) * unit_seconds


def devices_of(ids: str | None) -> list[Device]:
    """Return the devices, or those that are named.

    Raises:
        RefusedError: there are none, or one of the names is no device's.
    """
    count = nvml.nvmlDeviceGetCount()
    if ids is None:
        found = [Device(index) for index in range(count)]
    else:
        found = [_device_named(each.strip()) for each in ids.split(",")]
    if not found:
        raise RefusedError("No devices were found", NOT_FOUND)
    return found


def _device_named(name: str) -> Device:
    try:
        if name.isdecimal():
            return Device(int(name))
        is_uuid = name.startswith("GPU-")
        find = nvml.nvmlDeviceGetHandleByUUID if is_uuid else nvml.nvmlDeviceGetHandleByPciBusId
        return Device(nvml.nvmlDeviceGetIndex(find(name)))
    except nvml.NVMLError:
        raise RefusedError("No devices were found", NOT_FOUND) from None


def _rows(options: Options, devices: Sequence[Device]) -> str:
    assert options.query is not None
    assert options.format is not None
    fields, subjects_of = QUERIES[options.query]
    columns = [fields[name] for name in options.columns]
    with_unit = "nounits" not in options.format
    return "\n".join(
        ", ".join(column.value(subject, with_unit) for column in columns)
        for device in devices
        for subject in subjects_of(device)
    )


def _header(options: Options) -> str | None:
    """Return the titles of a query, which stand once before all of its rows."""
    if options.query is None or options.format is None or "noheader" in options.format:
        return None
    fields = QUERIES[options.query][0]
    return ", ".join(fields[name].header() for name in options.columns)


def _page(options: Options) -> Callable[[Sequence[Device]], str]:
    if options.query is not None:
        return lambda devices: _rows(options, devices)
    if options.is_list:
        return table.as_list
    if options.is_report or options.is_xml:
        write = report.as_xml if options.is_xml else report.as_text
        return lambda devices: write(devices, options.sections)
    return table.as_table


def _help() -> str:
    queries = "\n".join(
        f"    --query-{name + '=':<20}Fields of {name}, separated by commas." for name in QUERIES
    )
    names = list(report.SECTIONS)
    lines = [", ".join(names[first : first + 5]) for first in range(0, len(names), 5)]
    return HELP.format(queries=queries, sections=(",\n" + " " * 32).join(lines))


def _help_of(query: str) -> str:
    fields = QUERIES[query][0]
    by_field: dict[int, list[str]] = {}
    for name, field in fields.items():
        by_field.setdefault(id(field), []).append(f'"{name}"')
    lines = [f'List of valid properties to query for the switch "--query-{query}":', ""]
    for names in by_field.values():
        unit = fields[names[0].strip('"')].unit
        lines += [" or ".join(names), f"In {unit}." if unit else "", ""]
    return "\n".join(lines)


def _version() -> str:
    driver = nvml.nvmlSystemGetDriverVersion()
    rows = (
        ("NVIDIA-SMI version", driver),
        ("NVML version", driver.rpartition(".")[0]),
        ("DRIVER version", driver),
        ("CUDA Version", cuda_version()),
    )
    return "\n".join(f"{name:<20}: {value}" for name, value in rows)


class _UnwrittenError(Exception):
    """The output, or the file in its place, takes no more."""


def _unwritten(error: OSError, out: str) -> _UnwrittenError:
    return _UnwrittenError(f"Unable to write to {out}: {error.strerror}.")


def _print(text: str, out: IO[str] | None = None, *, end: str = "\n") -> None:
    """Print and flush, so that a full disk is an error here."""
    try:
        print(text, end=end, file=out, flush=True)
    except OSError as error:
        raise _unwritten(error, "the output" if out is None else f'"{out.name}"') from error


def _print_all(options: Options, out: IO[str] | None) -> None:
    page, header = _page(options), _header(options)
    if header is not None:
        _print(header, out)
    while True:
        text = page(devices_of(options.ids))
        if text or options.query is None:
            _print(text, out)
        if options.loop_seconds is None:
            return
        time.sleep(options.loop_seconds)


def _print_to_file(options: Options, name: str) -> None:
    try:
        file = open(name, "w", encoding="utf-8")  # noqa: SIM115 (what goes on within it has errors of its own)
    except OSError as error:
        raise _unwritten(error, f'"{name}"') from error
    with file:
        _print_all(options, file)


def _run(arguments: Sequence[str]) -> None:
    if any(argument in ("-h", "--help") for argument in arguments):
        _print(_help(), end="")
        return
    for query in QUERIES:
        if f"--help-query-{query}" in arguments:
            _print(_help_of(query))
            return
    if arguments[:1] == ["topo"]:
        if list(arguments[1:]) not in (["-m"], ["--matrix"]):
            raise RefusedError(f"Invalid combination of input arguments. {_ASK_HELP}")
        options, page = Options(), table.as_topology
    else:
        options, page = parse([each for each in arguments if each != "--version"]), None
    nvml.nvmlInit()
    if "--version" in arguments:
        _print(_version())
    elif page is not None:
        _print(page(devices_of(None)))
    elif options.file is not None:
        _print_to_file(options, options.file)
    else:
        _print_all(options, None)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status. A loop ends with Ctrl-C or its output's reader."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        try:
            _run(arguments)
        except RefusedError as error:
            _print(str(error))
            return error.status
        except nvml.NVMLError as error:
            _print(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
                f"that it runs under `loom run`, and that its settings are right: {error}."
            )
            return NO_DRIVER
    except KeyboardInterrupt:
        return 0
    except _UnwrittenError as error:
        print(error, file=sys.stderr)
        # What could not be written is still in the buffer, and Python would try again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INVALID_ARGUMENT
    return 0

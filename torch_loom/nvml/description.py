"""The description of the devices that the library reads, and how programs find the library.

The library cannot read chips and settings. It finds the devices in the variable ``TORCH_LOOM_NVML``. If that
does not describe them, or was written under other settings, it has this file do so, in a process of its own.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

from torch_loom import config
from torch_loom.errors import ExtensionError, LoomError
from torch_loom.nvml import BIN, LIBRARY

# What the library takes of a chip's description, in its units.
_FIGURES = (
    "capability_major",
    "capability_minor",
    "num_cores",
    "power_idle_watts",
    "power_max_watts",
    "temperature_idle_celsius",
    "temperature_max_celsius",
    "clock_mhz",
    "clock_idle_mhz",
    "memory_clock_mhz",
    "memory_bus_bits",
    "num_links",
    "link_gbps",
)
# A driver of the branch that came with each version of CUDA: nvidia-smi shows both.
_DRIVERS = {
    (12, 4): "550.163.01",
    (12, 6): "560.35.05",
    (12, 8): "570.172.08",
    (12, 9): "575.57.08",
    (13, 0): "580.95.05",
    (13, 1): "590.44.01",
    (13, 2): "595.71.05",
}
_DEFAULT_CUDA = "13.0"
_SEPARATORS = frozenset(b"%|;=")

_library: ctypes.CDLL | None = None  # kept, so that it stays loaded


def load() -> None:
    """Have this process find the library, too, and those that it starts as by :func:`offer`.

    Raises:
        ExtensionError: the library was not built.
    """
    global _library
    try:
        # What is loaded is found by its name, wherever it is; the search path was read when Python began.
        _library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise ExtensionError(
            f"{LIBRARY} could not be loaded ({error}). It was not built: build torch-loom again."
        ) from error
    offer()


def offer() -> None:
    """Make child processes find the library and the command first."""
    config.put_first("PATH", BIN)
    config.put_first("LD_LIBRARY_PATH", os.path.dirname(LIBRARY))
    if config.raw_value(config.NVML)[0] is None:
        config.export({config.NVML.name: _quoted(_python())})


def export(settings: config.Settings) -> None:
    """Describe the devices to the library, in this process and in those that it starts.

    Raises:
        ChipError: there is no such chip, or its description cannot be used.
    """
    config.export({config.NVML.name: describe(settings)})


def describe(settings: config.Settings | None = None) -> str:
    """Return what the library reads: four parts or more between bars, the last ones each a kind of device.

    Args:
        settings: what the devices are; those of the environment if None.

    Raises:
        ConfigurationError: a setting has a bad value.
        ChipError: there is no such chip, or its description cannot be used.
    """
    settings = settings or config.resolve()
    # Programs may be given no CUDA version, but a driver has one.
    version = config.cuda_version(_DEFAULT_CUDA) or _DEFAULT_CUDA
    major, minor = (int(number) for number in version.split(".")[:2])
    newest = max(_DRIVERS)
    driver = _DRIVERS[min((known for known in _DRIVERS if known >= (major, minor)), default=newest)]
    made_under = {name: "" if text is None else f"={text}" for name, text in config.machine_texts().items()}
    about = {"machine": settings.machine, "driver": driver, "cuda": major * 1000 + minor * 10}
    return "|".join([_quoted(_python()), _fields(made_under), _fields(about), *_kinds(settings)])


def _kinds(settings: config.Settings) -> list[str]:
    """Return a part for each run of equal devices."""
    from torch_loom import chips  # here: `import torch` needs no reader of chips

    read = {name: chips.load(name) for name in dict.fromkeys(settings.chips)}
    runs: list[tuple[Mapping[str, object], list[str]]] = []
    for physical in range(settings.devices):
        chip, memory_bytes = read[settings.chips[physical]], settings.memories[physical]
        figures: dict[str, object] = {
            "name": chip.product_name or chip.name,
            "memory_bytes": chip.memory_bytes if memory_bytes is None else memory_bytes,
            "driver_memory_bytes": chip.driver_memory_bytes if memory_bytes is None else 0,
            **{name: getattr(chip, name) for name in _FIGURES},
        }
        if not runs or runs[-1][0] != figures:
            runs.append((figures, []))
        runs[-1][1].append(str(config.device_uuid(settings.machine, str(physical))))
    return [_fields({**figures, "uuids": ",".join(uuids)}) for figures, uuids in runs]


def _fields(values: Mapping[str, object]) -> str:
    return ";".join(f"{name}={_quoted(str(value))}" for name, value in values.items())


def _quoted(text: str) -> str:
    # Nearly everything stands for itself: a shell takes the first part from this.
    plain = bytes(range(0x20, 0x7F))
    encoded = os.fsencode(text)
    return "".join(
        chr(byte) if byte in plain and byte not in _SEPARATORS else f"%{byte:02X}" for byte in encoded
    )


def _python() -> str:
    return sys.executable or "python3"


def main() -> None:
    """Print the description; what the library starts."""
    try:
        print(describe(), end="")
    except LoomError as error:
        sys.exit(f"torch-loom: {error}")

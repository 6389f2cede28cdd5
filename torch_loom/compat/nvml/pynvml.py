"""The functions of ``pynvml`` that libraries call, answered by the virtual devices.

A handle is the index of a device of the program. Figures are those of ``torch.cuda``: utilisation and memory
are measured, power, temperature and clock simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from torch_loom.errors import LoomError, NotApplicableError

__version__ = "torch-loom"

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_GRAPHICS = 0
NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
NVML_DEVICE_UUID_BUFFER_SIZE = 80

_MESSAGES = {
    NVML_ERROR_UNINITIALIZED: "Uninitialized: call nvmlInit() first",
    NVML_ERROR_INVALID_ARGUMENT: "Invalid Argument",
    NVML_ERROR_NOT_SUPPORTED: "Not Supported",
    NVML_ERROR_NOT_FOUND: "Not Found",
}
_users = 0


class NVMLError(LoomError):
    """An error of NVML's, with its number in ``value``."""

    def __init__(self, value: int) -> None:
        super().__init__(_MESSAGES.get(value, f"Unknown Error {value}"))
        self.value = value


class NVMLError_Uninitialized(NVMLError):  # noqa: N801, N818 (NVML's names)
    """NVML was not initialised."""


class NVMLError_InvalidArgument(NVMLError):  # noqa: N801, N818
    """There is no such device."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818
    """The devices do not have this."""


class NVMLError_NotFound(NVMLError):  # noqa: N801, N818
    """There is no device of that name."""


@dataclass(frozen=True)
class c_nvmlMemory_t:  # noqa: N801
    """Memory of a device in bytes."""

    total: int
    free: int
    used: int


@dataclass(frozen=True)
class c_nvmlUtilization_t:  # noqa: N801
    """Percent of the last second in which kernels ran, and in which memory was used."""

    gpu: int
    memory: int


@dataclass(frozen=True)
class c_nvmlProcessInfo_t:  # noqa: N801
    """A process and the memory of the device that it has taken, in bytes."""

    pid: int
    usedGpuMemory: int  # noqa: N815


def nvmlInit() -> None:  # noqa: N802
    """Begin to ask; calls are counted."""
    global _users
    _users += 1


def nvmlInitWithFlags(flags: int) -> None:  # noqa: N802
    """As :func:`nvmlInit`; the flags mean nothing here."""
    nvmlInit()


def nvmlShutdown() -> None:  # noqa: N802
    """End to ask.

    Raises:
        NVMLError_Uninitialized: nvmlInit() was not called.
    """
    global _users
    _check()
    _users -= 1


def _check(handle: int | None = None) -> Any:
    if not _users:
        raise NVMLError_Uninitialized(NVML_ERROR_UNINITIALIZED)
    module: Any = torch.loom  # type: ignore[attr-defined]
    if handle is not None and not (isinstance(handle, int) and 0 <= handle < module.device_count()):
        raise NVMLError_InvalidArgument(NVML_ERROR_INVALID_ARGUMENT)
    return module


def nvmlDeviceGetCount() -> int:  # noqa: N802
    """Return how many devices the program sees."""
    return int(_check().device_count())


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    """Return the handle of a device."""
    _check(index)
    return index


def nvmlDeviceGetHandleByUUID(uuid: str | bytes) -> int:  # noqa: N802
    """Return the handle of the device with a UUID, with or without ``GPU-``."""
    text = uuid.decode() if isinstance(uuid, bytes) else uuid
    for index in range(nvmlDeviceGetCount()):
        if text.removeprefix("GPU-") == nvmlDeviceGetUUID(index).removeprefix("GPU-"):
            return index
    raise NVMLError_NotFound(NVML_ERROR_NOT_FOUND)


def nvmlDeviceGetIndex(handle: int) -> int:  # noqa: N802
    """Return the index of a device."""
    _check(handle)
    return handle


def nvmlDeviceGetName(handle: int) -> str:  # noqa: N802
    """Return the name of a device: its chip's."""
    return str(_check(handle).get_device_name(handle))


def nvmlDeviceGetUUID(handle: int) -> str:  # noqa: N802
    """Return the UUID of a device."""
    return f"GPU-{_check(handle).get_device_properties(handle).uuid}"


def nvmlDeviceGetMemoryInfo(handle: int, version: object = None) -> c_nvmlMemory_t:  # noqa: N802
    """Return the memory of a device, all processes counted."""
    module = _check(handle)
    total = module.get_device_properties(handle).total_memory
    used = min(module.device_memory_used(handle), total)
    return c_nvmlMemory_t(total=total, free=total - used, used=used)


def nvmlDeviceGetUtilizationRates(handle: int) -> c_nvmlUtilization_t:  # noqa: N802
    """Return how busy a device was in the last second."""
    module = _check(handle)
    return c_nvmlUtilization_t(gpu=module.utilization(handle), memory=module.memory_usage(handle))


def nvmlDeviceGetTemperature(handle: int, sensor: int = NVML_TEMPERATURE_GPU) -> int:  # noqa: N802
    """Return the temperature in degrees Celsius."""
    return int(_check(handle).temperature(handle))


def nvmlDeviceGetPowerUsage(handle: int) -> int:  # noqa: N802
    """Return the power in milliwatts."""
    return int(_check(handle).power_draw(handle))


def nvmlDeviceGetClockInfo(handle: int, kind: int = NVML_CLOCK_SM) -> int:  # noqa: N802
    """Return a clock in MHz: of the cores, or of the memory."""
    module = _check(handle)
    if kind == NVML_CLOCK_MEM:
        return int(module.get_device_properties(handle).memory_clock_rate) // 1000
    return int(module.clock_rate(handle))


def nvmlDeviceGetCudaComputeCapability(handle: int) -> tuple[int, int]:  # noqa: N802
    """Return the capability of the chip."""
    major, minor = _check(handle).get_device_capability(handle)
    return int(major), int(minor)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[c_nvmlProcessInfo_t]:  # noqa: N802
    """Return the processes that have taken memory of a device."""
    from torch_loom.device.telemetry import activity

    physical: Any = _check(handle).get_device_properties(handle).extra["physical_index"]
    found = activity.processes(physical)
    return [c_nvmlProcessInfo_t(each.pid, each.memory_bytes) for each in found if each.memory_bytes]


nvmlDeviceGetGraphicsRunningProcesses = nvmlDeviceGetComputeRunningProcesses  # noqa: N816


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    """Return what stands for the version of a driver."""
    _check()
    from torch_loom import __version__ as version

    return f"torch-loom {version}"


def nvmlSystemGetCudaDriverVersion() -> int:  # noqa: N802
    """Return the version of CUDA that programs are told, as 12080; 0 without one."""
    _check()
    version = torch.version.cuda
    major, minor = ("0.0" if version is None else version).split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def __getattr__(name: str) -> NoReturn:
    if name.startswith("nvml"):
        raise NotApplicableError(f"pynvml.{name} is not among what torch-loom's devices answer")
    raise AttributeError(f"module 'pynvml' has no attribute {name!r}")

"""The library asked by ctypes: functions of ``pynvml``, by their names.

The command stands on it, and programs may where nvidia-ml-py is not installed. It imports nothing slow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

from torch_loom.nvml import LIBRARY

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_INSUFFICIENT_SIZE = 7
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_GRAPHICS = 0
NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
NVML_CLOCK_VIDEO = 3
NVML_DEVICE_UUID_BUFFER_SIZE = 80
nvmlMemory_v2 = 0x2000028  # the version, and the size of the structure

_TEXT_BYTES = 96
_library: ctypes.CDLL | None = None


class NVMLError(Exception):
    """An error of NVML's, with its number in ``value``."""

    def __init__(self, value: int) -> None:
        super().__init__(nvmlErrorString(value))
        self.value = value


class NVMLError_Uninitialized(NVMLError):
    """NVML was not initialised."""


class NVMLError_InvalidArgument(NVMLError):
    """There is no such device."""


class NVMLError_NotSupported(NVMLError):
    """The devices do not have this."""


class NVMLError_NotFound(NVMLError):
    """There is no device of that name."""


class NVMLError_DriverNotLoaded(NVMLError):
    """The devices cannot be described: their settings are bad, or they are not CUDA's."""


_CLASSES: dict[int, type[NVMLError]] = {
    NVML_ERROR_UNINITIALIZED: NVMLError_Uninitialized,
    NVML_ERROR_INVALID_ARGUMENT: NVMLError_InvalidArgument,
    NVML_ERROR_NOT_SUPPORTED: NVMLError_NotSupported,
    NVML_ERROR_NOT_FOUND: NVMLError_NotFound,
    NVML_ERROR_DRIVER_NOT_LOADED: NVMLError_DriverNotLoaded,
}


class c_nvmlMemory_t(ctypes.Structure):
    """Memory of a device in bytes."""

    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class c_nvmlMemory_v2_t(ctypes.Structure):
    """Memory of a device in bytes, what the driver keeps apart from what processes use."""

    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class c_nvmlBAR1Memory_t(ctypes.Structure):
    """The window on a device's memory, in bytes."""

    _fields_ = [("bar1Total", c_ulonglong), ("bar1Free", c_ulonglong), ("bar1Used", c_ulonglong)]


class c_nvmlUtilization_t(ctypes.Structure):
    """Percent of the last second in which kernels ran, and in which memory was used."""

    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class c_nvmlProcessInfo_t(ctypes.Structure):
    """A process and the memory of the device that it has taken, in bytes."""

    _fields_ = [
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    ]


class nvmlPciInfo_t(ctypes.Structure):
    """Where a device is on its bus."""

    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", ctypes.c_char * 32),
    ]


def _loaded() -> ctypes.CDLL:
    global _library
    if _library is None:
        _library = ctypes.CDLL(LIBRARY)
        _library.nvmlErrorString.restype = c_char_p
    return _library


def _ask(name: str, *arguments: Any) -> None:
    value = getattr(_loaded(), name)(*arguments)
    if value != NVML_SUCCESS:
        raise _CLASSES.get(value, NVMLError)(value)


def nvmlErrorString(value: int) -> str:
    """Return what an error's number means."""
    text: bytes = _loaded().nvmlErrorString(value)
    return text.decode()


def nvmlInit() -> None:
    """Begin to ask; calls are counted."""
    _ask("nvmlInit_v2")


def nvmlInitWithFlags(flags: int) -> None:
    """As :func:`nvmlInit`; the flags mean nothing here."""
    _ask("nvmlInitWithFlags", c_uint(flags))


def nvmlShutdown() -> None:
    """End to ask.

    Raises:
        NVMLError_Uninitialized: nvmlInit() was not called.
    """
    _ask("nvmlShutdown")


def _text(name: str, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    _ask(name, *arguments, buffer, c_uint(_TEXT_BYTES))
    return buffer.value.decode()


def _numbers(name: str, count: int = 1, kind: Any = c_uint) -> Callable[..., Any]:
    """Return a function that takes a handle and numbers, and returns a number or a tuple of so many."""

    def ask(handle: Any, *arguments: int) -> Any:
        results = [kind() for _ in range(count)]
        _ask(name, handle, *map(c_uint, arguments), *map(byref, results))
        return results[0].value if count == 1 else tuple(result.value for result in results)

    return ask


def _structure(name: str, kind: Any) -> Callable[..., Any]:
    def ask(handle: Any, version: object = None) -> Any:
        result = kind()
        _ask(name, handle, byref(result))
        return result

    return ask


def nvmlSystemGetDriverVersion() -> str:
    """Return the version of the driver that comes with the version of CUDA."""
    return _text("nvmlSystemGetDriverVersion")


def nvmlSystemGetNVMLVersion() -> str:
    """Return the version of NVML's own."""
    return _text("nvmlSystemGetNVMLVersion")


def nvmlSystemGetCudaDriverVersion() -> int:
    """Return the version of CUDA, as 12080."""
    result = c_int()
    _ask("nvmlSystemGetCudaDriverVersion_v2", byref(result))
    return result.value


def nvmlSystemGetProcessName(pid: int) -> str:
    """Return the program that a process runs."""
    buffer = ctypes.create_string_buffer(1024)
    _ask("nvmlSystemGetProcessName", c_uint(pid), buffer, c_uint(1024))
    return buffer.value.decode(errors="replace")


def nvmlDeviceGetCount() -> int:
    """Return how many devices the machine has, visible to the program or not."""
    result = c_uint()
    _ask("nvmlDeviceGetCount_v2", byref(result))
    return result.value


def _handle(name: str, argument: Any) -> c_void_p:
    result = c_void_p()
    _ask(name, argument, byref(result))
    return result


def _as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def nvmlDeviceGetHandleByIndex(index: int) -> c_void_p:
    """Return the handle of a device."""
    return _handle("nvmlDeviceGetHandleByIndex_v2", c_uint(index))


def nvmlDeviceGetHandleByUUID(uuid: str | bytes) -> c_void_p:
    """Return the handle of the device with a UUID."""
    return _handle("nvmlDeviceGetHandleByUUID", _as_bytes(uuid))


def nvmlDeviceGetHandleByPciBusId(bus_id: str | bytes) -> c_void_p:
    """Return the handle of the device at a place of the bus."""
    return _handle("nvmlDeviceGetHandleByPciBusId_v2", _as_bytes(bus_id))


def nvmlDeviceGetName(handle: c_void_p) -> str:
    """Return what a device calls itself."""
    return _text("nvmlDeviceGetName", handle)


def nvmlDeviceGetUUID(handle: c_void_p) -> str:
    """Return the UUID of a device."""
    return _text("nvmlDeviceGetUUID", handle)


def nvmlDeviceGetMemoryInfo(handle: c_void_p, version: int | None = None) -> Any:
    """Return the memory of a device in bytes.

    Args:
        handle: the device's.
        version: ``nvmlMemory_v2`` for ``reserved``, what the driver keeps, apart from ``used``; without it
            ``used`` has both.
    """
    if version is None:
        found: Any = c_nvmlMemory_t()
        _ask("nvmlDeviceGetMemoryInfo", handle, byref(found))
    else:
        found = c_nvmlMemory_v2_t(version)
        _ask("nvmlDeviceGetMemoryInfo_v2", handle, byref(found))
    return found


def nvmlDeviceGetP2PStatus(handle: c_void_p, other: c_void_p, kind: int) -> int:
    """Return 0 if one device reaches the memory of the other."""
    result = c_int()
    _ask("nvmlDeviceGetP2PStatus", handle, other, c_int(kind), byref(result))
    return result.value


def nvmlDeviceGetComputeRunningProcesses(handle: c_void_p) -> list[c_nvmlProcessInfo_t]:
    """Return the processes that have taken memory of a device."""
    count = c_uint(0)
    while True:
        found = (c_nvmlProcessInfo_t * count.value)()
        try:
            _ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), found)
        except NVMLError as error:
            if error.value != NVML_ERROR_INSUFFICIENT_SIZE:
                raise
        else:
            return list(found)[: count.value]


def nvmlDeviceGetSupportedGraphicsClocks(handle: c_void_p, memory_clock: int) -> list[int]:
    """Return the clocks of the cores that go with one of the memory, in MHz."""
    count, clocks = c_uint(64), (c_uint * 64)()
    _ask("nvmlDeviceGetSupportedGraphicsClocks", handle, c_uint(memory_clock), byref(count), clocks)
    return list(clocks)[: count.value]


nvmlDeviceGetBAR1MemoryInfo = _structure("nvmlDeviceGetBAR1MemoryInfo", c_nvmlBAR1Memory_t)
nvmlDeviceGetUtilizationRates = _structure("nvmlDeviceGetUtilizationRates", c_nvmlUtilization_t)
nvmlDeviceGetPciInfo = _structure("nvmlDeviceGetPciInfo_v3", nvmlPciInfo_t)

nvmlDeviceGetIndex = _numbers("nvmlDeviceGetIndex")
nvmlDeviceGetMinorNumber = _numbers("nvmlDeviceGetMinorNumber")
nvmlDeviceGetBrand = _numbers("nvmlDeviceGetBrand")
nvmlDeviceGetArchitecture = _numbers("nvmlDeviceGetArchitecture")
nvmlDeviceGetBoardId = _numbers("nvmlDeviceGetBoardId")
nvmlDeviceGetNumGpuCores = _numbers("nvmlDeviceGetNumGpuCores")
nvmlDeviceGetMemoryBusWidth = _numbers("nvmlDeviceGetMemoryBusWidth")
nvmlDeviceGetPersistenceMode = _numbers("nvmlDeviceGetPersistenceMode")
nvmlDeviceGetComputeMode = _numbers("nvmlDeviceGetComputeMode")
nvmlDeviceGetEccMode = _numbers("nvmlDeviceGetEccMode", 2)
nvmlDeviceGetTotalEccErrors = _numbers("nvmlDeviceGetTotalEccErrors", kind=c_ulonglong)
nvmlDeviceGetRemappedRows = _numbers("nvmlDeviceGetRemappedRows", 4)
nvmlDeviceGetEncoderUtilization = _numbers("nvmlDeviceGetEncoderUtilization", 2)
nvmlDeviceGetDecoderUtilization = _numbers("nvmlDeviceGetDecoderUtilization", 2)
nvmlDeviceGetTemperatureThreshold = _numbers("nvmlDeviceGetTemperatureThreshold")
nvmlDeviceGetPowerUsage = _numbers("nvmlDeviceGetPowerUsage")
nvmlDeviceGetEnforcedPowerLimit = _numbers("nvmlDeviceGetEnforcedPowerLimit")
nvmlDeviceGetPowerManagementLimit = _numbers("nvmlDeviceGetPowerManagementLimit")
nvmlDeviceGetPowerManagementDefaultLimit = _numbers("nvmlDeviceGetPowerManagementDefaultLimit")
nvmlDeviceGetPowerManagementLimitConstraints = _numbers("nvmlDeviceGetPowerManagementLimitConstraints", 2)
nvmlDeviceGetPerformanceState = _numbers("nvmlDeviceGetPerformanceState")
nvmlDeviceGetMaxClockInfo = _numbers("nvmlDeviceGetMaxClockInfo")
nvmlDeviceGetApplicationsClock = _numbers("nvmlDeviceGetApplicationsClock")
nvmlDeviceGetDefaultApplicationsClock = _numbers("nvmlDeviceGetDefaultApplicationsClock")
nvmlDeviceGetCurrentClocksEventReasons = _numbers("nvmlDeviceGetCurrentClocksEventReasons", kind=c_ulonglong)
nvmlDeviceGetSupportedClocksEventReasons = _numbers(
    "nvmlDeviceGetSupportedClocksEventReasons", kind=c_ulonglong
)
nvmlDeviceGetCurrPcieLinkGeneration = _numbers("nvmlDeviceGetCurrPcieLinkGeneration")
nvmlDeviceGetMaxPcieLinkGeneration = _numbers("nvmlDeviceGetMaxPcieLinkGeneration")
nvmlDeviceGetCurrPcieLinkWidth = _numbers("nvmlDeviceGetCurrPcieLinkWidth")
nvmlDeviceGetMaxPcieLinkWidth = _numbers("nvmlDeviceGetMaxPcieLinkWidth")
nvmlDeviceGetPcieReplayCounter = _numbers("nvmlDeviceGetPcieReplayCounter")
nvmlDeviceGetNvLinkState = _numbers("nvmlDeviceGetNvLinkState")
nvmlDeviceGetMigMode = _numbers("nvmlDeviceGetMigMode", 2)
nvmlDeviceGetFanSpeed = _numbers("nvmlDeviceGetFanSpeed")
nvmlDeviceGetCudaComputeCapability = _numbers("nvmlDeviceGetCudaComputeCapability", 2, c_int)


def nvmlDeviceGetTemperature(handle: c_void_p, sensor: int = NVML_TEMPERATURE_GPU) -> int:
    """Return the temperature in degrees Celsius."""
    result: int = _numbers("nvmlDeviceGetTemperature")(handle, sensor)
    return result


def nvmlDeviceGetClockInfo(handle: c_void_p, kind: int = NVML_CLOCK_SM) -> int:
    """Return a clock in MHz: of the cores, or of the memory."""
    result: int = _numbers("nvmlDeviceGetClockInfo")(handle, kind)
    return result

"""What the command knows of a device: NVML's answers, None where the device has none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from torch_loom.nvml import client as nvml

_ABSENT = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_BRANDS = {2: "Tesla", 5: "GeForce", 6: "Titan", 13: "NVIDIA RTX", 14: "NVIDIA"}
_ARCHITECTURES = {5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"}
IDLE_REASON = 1


class Device:
    """One device, asked when a figure is needed."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(self, function: Callable[..., Any], *arguments: int) -> Any:
        """Return the answer, or None if the device does not have this."""
        try:
            return function(self.handle, *arguments)
        except nvml.NVMLError as error:
            if error.value in _ABSENT:
                return None
            raise

    @property
    def name(self) -> str:
        """What it calls itself."""
        return nvml.nvmlDeviceGetName(self.handle)

    @property
    def uuid(self) -> str:
        """Its identifier."""
        return nvml.nvmlDeviceGetUUID(self.handle)

    @property
    def pci(self) -> Any:
        """Its place on the bus."""
        return nvml.nvmlDeviceGetPciInfo(self.handle)

    @property
    def bus_id(self) -> str:
        """Its place on the bus as text."""
        text: bytes = self.pci.busId
        return text.decode()

    @property
    def memory(self) -> Any:
        """Its memory, in bytes."""
        return nvml.nvmlDeviceGetMemoryInfo(self.handle, nvml.nvmlMemory_v2)

    @property
    def brand(self) -> str | None:
        """What its name says of its kind."""
        return _BRANDS.get(nvml.nvmlDeviceGetBrand(self.handle))

    @property
    def architecture(self) -> str | None:
        """Whose compute capability it has."""
        return _ARCHITECTURES.get(nvml.nvmlDeviceGetArchitecture(self.handle))

    @property
    def capability(self) -> str:
        """Its compute capability."""
        return "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(self.handle))

    def processes(self) -> list[tuple[int, str, int]]:
        """Return the id, the program and the memory in bytes of each process that has taken memory."""
        found = nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return [(each.pid, program_of(each.pid), each.usedGpuMemory) for each in found]


def program_of(pid: int) -> str:
    """Return what a process runs; NVIDIA's words if it has ended."""
    try:
        return nvml.nvmlSystemGetProcessName(pid) or "[Not Found]"
    except nvml.NVMLError:
        return "[Not Found]"


def cuda_version() -> str:
    """Return the version of CUDA, as 13.0."""
    version = nvml.nvmlSystemGetCudaDriverVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


def ctime() -> str:
    """Return the time as the table and the report have it."""
    return time.strftime("%a %b %e %H:%M:%S %Y")


def timestamp() -> str:
    """Return the time as queries have it."""
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03}"


def mib(value_bytes: int) -> int:
    """Return bytes in MiB."""
    return value_bytes >> 20


def processors() -> str:
    """Return the host's processors as a range."""
    return f"0-{(os.cpu_count() or 1) - 1}"

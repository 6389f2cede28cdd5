"""Enumerations of PyBuda's runtime. Instead of its C++ API: ``loom run-image``."""

from torch_loom.pybuda.enums import COMPILE_FAILURE, BackendDevice, BackendType, DeviceMode
from torch_loom.pybuda.run.api import detect_available_devices

__all__ = [
    "COMPILE_FAILURE",
    "BackendDevice",
    "BackendType",
    "DeviceMode",
    "detect_available_silicon_devices",
]

detect_available_silicon_devices = detect_available_devices

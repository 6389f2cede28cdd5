"""Enumerations of PyBuda's runtime. Instead of its C++ API: ``loom run-image``."""

from torch_loom.pybuda.enums import COMPILE_FAILURE, BackendDevice, BackendType, DeviceMode

__all__ = ["COMPILE_FAILURE", "BackendDevice", "BackendType", "DeviceMode"]

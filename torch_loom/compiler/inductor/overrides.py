"""The lines of Python that Inductor writes to choose and synchronise a device."""

from __future__ import annotations

from torch._inductor.codegen.common import DeviceOpOverrides


class LoomOpOverrides(DeviceOpOverrides):
    """Calls of ``torch.<name>``."""

    def __init__(self, name: str) -> None:
        self._module = f"torch.{name}"

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"{name} = lambda device: {self._module}.current_stream(device).native_handle"

    def set_device(self, device_idx: int) -> str:
        return f"{self._module}.set_device({device_idx})"

    def synchronize(self) -> str:
        return f"{self._module}.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"{self._module}._DeviceGuard({device_idx})"

    def current_stream(self) -> str:
        return f"{self._module}.current_stream()"

    def cpp_kernel_type(self) -> str:
        return "void*"

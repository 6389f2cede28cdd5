"""What Dynamo and Inductor ask of a device."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface

from torch_loom import config


def interface_of(name: str) -> type[DeviceInterface]:
    """Return the interface of the device type with this name; its methods are those of ``torch.<name>``."""
    module: Any = getattr(torch, name)

    class Worker:
        """What a compiling process asks, which may have no devices: properties are read beforehand."""

        current: int | None = None

        @staticmethod
        def set_device(device: int) -> None:
            Worker.current = device

        @staticmethod
        def current_device() -> int:
            return int(module.current_device()) if Worker.current is None else Worker.current

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            return module.get_device_properties(device)

    has_triton = config.generates_triton()

    def raise_if_triton_unavailable(device: Any = None) -> None:
        if has_triton:
            return
        raise RuntimeError(
            f"Triton generates no code for {name} devices: Inductor generates C++ for them. Leave "
            "config.cpu_backend and config.cuda_backend as they are."
        )

    members: dict[str, Any] = {
        "device": module.device,
        "Event": module.Event,
        "Stream": module.Stream,
        "Worker": Worker,
        "is_bf16_supported": staticmethod(lambda including_emulation=False: True),
        "is_dtype_supported": staticmethod(lambda dtype, including_emulation=False: True),
        "get_compute_capability": staticmethod(module.get_device_capability),
        "get_raw_stream": staticmethod(lambda device: int(module.current_stream(device).native_handle)),
        "exchange_device": staticmethod(module._exchange_device),
        "maybe_exchange_device": staticmethod(module._maybe_exchange_device),
        "is_triton_capable": staticmethod(lambda device=None: has_triton),
        "raise_if_triton_unavailable": staticmethod(raise_if_triton_unavailable),
    }
    same = (
        *("current_device", "set_device", "device_count", "is_available", "stream", "current_stream"),
        *("set_stream", "_set_stream_by_id", "synchronize", "get_device_properties", "memory_allocated"),
    )
    members.update({function: staticmethod(getattr(module, function)) for function in same})
    return type("LoomInterface", (DeviceInterface,), members)

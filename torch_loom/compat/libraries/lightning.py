"""Lightning: an accelerator of the device's name, in its registry, with the right strategy and autocast."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from torch_loom.patches.declared import LIBRARIES


def apply(name: str) -> None:
    """Register ``Trainer(accelerator=name)`` with ``lightning``.

    Args:
        name: of the devices.
    """
    _apply(name, "lightning.pytorch", "lightning.fabric")


def apply_to_old_name(name: str) -> None:
    """Register ``Trainer(accelerator=name)`` with ``pytorch_lightning``.

    Args:
        name: of the devices.
    """
    _apply(name, "pytorch_lightning", "lightning_fabric")


def _apply(name: str, package: str, fabric: str) -> None:
    accelerators: Any = import_module(f"{package}.accelerators")
    accelerators.AcceleratorRegistry.register(
        name, _accelerator(name, accelerators.Accelerator, fabric), description=f"torch-loom's {name} devices"
    )
    connector: Any = import_module(f"{package}.trainer.connectors.accelerator_connector")
    class_ = connector._AcceleratorConnector
    # Both ask for names that Lightning has itself, and take the CPU or CUDA for any other.
    choose, check = class_._choose_strategy, class_._check_and_init_precision

    def _choose_strategy(self: Any) -> Any:
        devices = self._parallel_devices
        if not _is_own(self, name) or self._num_nodes_flag > 1 or len(devices) != 1:
            return choose(self)
        return connector.SingleDeviceStrategy(device=devices[0])

    def _check_and_init_precision(self: Any) -> Any:
        precision = check(self)
        if _is_own(self, name) and isinstance(precision, connector.MixedPrecision):
            if precision is self._precision_plugin_flag:
                return precision
            return connector.MixedPrecision(self._precision_flag, name)
        return precision

    LIBRARIES.put(
        class_, _choose_strategy=_choose_strategy, _check_and_init_precision=_check_and_init_precision
    )


def _is_own(connector: Any, name: str) -> bool:
    flag = connector._accelerator_flag
    return flag == name or getattr(type(flag), "device_name", None) == name


def _accelerator(name: str, base: Any, fabric: str) -> type:
    module: Any = torch.get_device_module(name)
    parser: Any = import_module(f"{fabric}.utilities.device_parser")
    own_name = name

    class DeviceAccelerator(base):  # type: ignore[misc]
        """Devices of torch-loom, as ``Trainer(accelerator=...)`` takes them."""

        device_name = own_name

        def setup_device(self, device: torch.device) -> None:
            module.set_device(device)

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(module.memory_stats(device))

        def teardown(self) -> None:
            module.empty_cache()

        @staticmethod
        def parse_devices(devices: Any) -> list[int]:
            count = module.device_count()
            if isinstance(devices, str):
                devices = parser._normalize_parse_gpu_string_input(devices)
            if isinstance(devices, int):
                devices = range(count if devices == -1 else devices)
            chosen = list(devices)
            if not chosen or not set(chosen) <= set(range(count)):
                raise ValueError(f"devices must be of 0 to {count - 1}, but got {chosen}: there are {count}")
            return chosen

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device(own_name, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return int(module.device_count())

        @staticmethod
        def is_available() -> bool:
            return bool(module.is_available())

        @staticmethod
        def name() -> str:
            return own_name

    DeviceAccelerator.__name__ = f"{name.capitalize()}Accelerator"
    return DeviceAccelerator

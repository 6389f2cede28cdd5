"""safetensors: files are read to the devices, through host memory: its reader has a list of devices."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from torch_loom.patches.declared import LIBRARIES


def _is_device(device: Any, name: str) -> bool:
    return str(device).split(":")[0] == name


def apply(name: str) -> None:
    """Make ``safetensors.safe_open`` take the devices.

    Args:
        name: of the devices.
    """
    library: Any = import_module("safetensors")
    opens = library.safe_open

    def safe_open(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
        if not _is_device(device, name):
            return opens(filename, framework, device, **options)
        return _OnDevice(opens(filename, framework, "cpu", **options), torch.device(device))

    safe_open.__doc__ = opens.__doc__
    LIBRARIES.put(library, safe_open=safe_open)


def apply_to_torch(name: str) -> None:
    """Make ``safetensors.torch.load_file`` take the devices; ``load_model`` asks it.

    Args:
        name: of the devices.
    """
    library: Any = import_module("safetensors.torch")
    loads = library.load_file

    def load_file(filename: Any, device: Any = "cpu", **options: Any) -> dict[str, torch.Tensor]:
        is_own = _is_device(device, name)
        found: dict[str, torch.Tensor] = loads(filename, "cpu" if is_own else device, **options)
        return {key: tensor.to(device) for key, tensor in found.items()} if is_own else found

    load_file.__doc__ = loads.__doc__
    LIBRARIES.put(library, load_file=load_file, safe_open=import_module("safetensors").safe_open)


class _OnDevice:
    # An open file whose tensors go to a device. What else it has is the reader's.
    def __init__(self, file: Any, device: torch.device) -> None:
        self._file = file
        self._device = device

    def __enter__(self) -> _OnDevice:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._file.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def get_tensor(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file.get_tensor(name)
        return tensor.to(self._device)

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._file.get_slice(name), self._device)


class _Slice:
    def __init__(self, part: Any, device: torch.device) -> None:
        self._part = part
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def __getitem__(self, index: Any) -> torch.Tensor:
        tensor: torch.Tensor = self._part[index]
        return tensor.to(self._device)

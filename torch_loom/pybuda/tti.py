"""Images: the compiled modules of a TTDevice in one file, and the device that runs them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch_loom.errors import ImageError, PyBudaError
from torch_loom.image import file
from torch_loom.image.executable import Executable
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pybuda.chips import device_type
from torch_loom.pybuda.enums import BackendDevice, BackendType
from torch_loom.pybuda.execution.chip_device import ChipDevice
from torch_loom.pybuda.execution.placing import compiled
from torch_loom.pybuda.module import Module
from torch_loom.pybuda.tensor import to_torch

_KEY = "pybuda"


class TTDeviceImage:
    """An image on disk and what its device was.

    Attributes:
        path: the file.
        device_name, chip_ids, arch, devtype: of the device that was compiled.
        microbatch_count: the count that it was compiled with.
        is_compiled_for_training: always False: images run inference.
    """

    is_compiled_for_training = False

    def __init__(self, path: str | os.PathLike[str], body: dict[str, Any]) -> None:
        known = body[_KEY]
        self.path = Path(path)
        self.device_name: str = known["name"]
        self.chip_ids: list[int] = list(known["chip_ids"])
        self.arch = BackendDevice.from_string(known["arch"])
        self.devtype = BackendType.from_string(known["devtype"])
        self.microbatch_count: int = known["microbatch_count"]
        self.modules: list[str] = list(known["modules"])
        self._inputs: list[dict[str, Any]] = body["program"]["inputs"]
        self._chip: str = body["chip"]

    @classmethod
    def load_from_disk(
        cls, tti_file_path: str | os.PathLike[str], device_id_overrides: Sequence[int] | None = None
    ) -> TTDeviceImage:
        """Read an image.

        Args:
            device_id_overrides: chips to run on, in place of those compiled for.

        Raises:
            ImageError: the file is no image, is damaged, or was not written by ``compile_to_image``.
        """
        body, _ = file.read(tti_file_path)
        if _KEY not in body:
            raise ImageError(
                f"{tti_file_path}: an image without a TTDevice, of torch_loom.compile: use loom run-image"
            )
        image = cls(tti_file_path, body)
        if device_id_overrides is not None:
            image.chip_ids = list(device_id_overrides)
        return image

    def get_input_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of each input."""
        return [tuple(one["shape"]) for one in self._inputs]

    def get_target_shapes(self) -> list[tuple[int, ...]]:
        """Return no shapes: images run inference and take no targets."""
        return []

    def info(self) -> str:
        """Return what the image holds, as text."""
        lines = {
            "device": f"{self.device_name}, chips {self.chip_ids}",
            "compiled for": f"{self._chip} ({self.devtype.to_string()})",
            "modules": ", ".join(self.modules),
            "inputs": ", ".join(f"{one['name']}: {one['dtype']} {one['shape']}" for one in self._inputs),
        }
        return "\n".join(f"{key}: {value}" for key, value in lines.items())


class ImageModule(Module):
    """The modules of an image, as a single module that a device runs."""

    def __init__(self, image: TTDeviceImage) -> None:
        super().__init__(f"image_{image.device_name}")
        self.image = image

    def torch_module(self) -> nn.Module:
        """Return what runs on the device's first chip."""
        place = torch.device(device_type(), self.image.chip_ids[0])
        return _Runner(Executable.load(self.image.path, place))


class _Runner(nn.Module):
    def __init__(self, executable: Executable) -> None:
        super().__init__()
        self.executable = executable

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return flatten_outputs(self.executable.run_flat(values))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Runner:
        return self  # its tensors are on its device already, and never change


def compile_image(
    device: ChipDevice, img_path: str | os.PathLike[str] | None, sample_inputs: Sequence[Any], count: int
) -> TTDeviceImage:
    """Compile the modules of a device for its chip and write them to a file.

    Raises:
        PyBudaError: arch or devtype are left open, or inputs are missing.
        LoomError: the compiler refuses the modules.
    """
    if device.arch is None or not device.devtype_given:
        raise PyBudaError(
            f"compile_to_image: device {device.name!r} needs arch= and devtype=, so that the image says what "
            "it is for"
        )
    if not sample_inputs:
        raise PyBudaError("compile_to_image needs sample_inputs, whose shapes are compiled for")
    path = Path(img_path) if img_path is not None else Path(f"device_images/{device.name}.tti")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"{path}: the image cannot be written ({error})") from error
    executable = compiled(device, [to_torch(value) for value in sample_inputs])
    known = {
        "name": device.name,
        "chip_ids": list(device.chip_ids),
        "arch": device.arch.to_string(),
        "devtype": device.devtype.to_string(),
        "microbatch_count": count,
        "modules": [module.name for module in device.modules],
    }
    executable.save(path, {_KEY: known})
    return TTDeviceImage.load_from_disk(path)

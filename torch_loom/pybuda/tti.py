"""Images: the compiled modules of a TTDevice in one file, and the modules that stand for it when it runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch_loom.errors import ImageError, PyBudaError
from torch_loom.image import file
from torch_loom.image.executable import Executable, sources_of
from torch_loom.pipeline import Stage
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pybuda import optimizers
from torch_loom.pybuda.chips import device_type
from torch_loom.pybuda.enums import BackendDevice, BackendType
from torch_loom.pybuda.execution.chip_device import ChipDevice
from torch_loom.pybuda.execution.placing import compiled
from torch_loom.pybuda.execution.tracing import InOrder
from torch_loom.pybuda.module import Module
from torch_loom.pybuda.parameter import Parameter
from torch_loom.pybuda.tensor import to_torch

_KEY = "pybuda"
_LOSS = "loss:"
"""What the names of the loss's tensors begin with: a program's own names have no colon."""


class TTDeviceImage:
    """An image on disk and what its device was.

    Attributes:
        path: the file.
        device_name, chip_ids, arch, devtype: of the device that was compiled.
        microbatch_count: the count that it was compiled with.
        modules: the names of the modules that were placed.
    """

    def __init__(self, path: str | os.PathLike[str], body: dict[str, Any]) -> None:
        self.path = Path(path)
        known = body[_KEY]
        self.device_name: str = known["name"]
        self.chip_ids: list[int] = list(known["chip_ids"])
        self.arch = BackendDevice.from_string(known["arch"])
        self.devtype = BackendType.from_string(known["devtype"])
        self.microbatch_count: int = known["microbatch_count"]
        self.modules: list[str] = list(known["modules"])
        self._training: dict[str, Any] | None = known.get("training")
        targets = self._training["targets"] if self._training else []
        self._targets = [tuple(int(size) for size in shape) for shape in targets]
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
        try:
            image = cls(tti_file_path, body)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ImageError(
                f"{tti_file_path}: the file is damaged: of its device it says {error!r}"
            ) from error
        if device_id_overrides is not None:
            image.chip_ids = list(device_id_overrides)
        return image

    def is_compiled_for_training(self) -> bool:
        """Whether runs of it are training; otherwise they are inference."""
        return self._training is not None

    def get_input_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of each input."""
        return [tuple(each["shape"]) for each in self._inputs]

    def get_target_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of each target; none of an image for inference."""
        return list(self._targets)

    def info(self) -> str:
        """Return what the image holds, as text."""
        lines = {
            "device": f"{self.device_name}, chips {self.chip_ids}",
            "compiled for": f"{self._chip} ({self.devtype.to_string()})",
            "runs": "training" if self.is_compiled_for_training() else "inference",
            "modules": ", ".join(self.modules),
            "inputs": ", ".join(f"{each['name']}: {each['dtype']} {each['shape']}" for each in self._inputs),
        }
        return "\n".join(f"{key}: {value}" for key, value in lines.items())


class ImageModule(Module):
    """The modules of an image, or its loss, as a single module that a device runs.

    Its parameters have the values of the image until others are set; a device takes them when it begins.
    """

    def __init__(self, image: TTDeviceImage, is_loss: bool = False) -> None:
        super().__init__(f"image_{image.device_name}" + ("_loss" if is_loss else ""))
        self.image = image
        self._is_loss = is_loss
        self._known: dict[str, Parameter] | None = None
        self._changed: set[str] = set()

    def get_parameters(self) -> list[Parameter]:
        """Return the parameters, by the names that they had in the modules of the image.

        Raises:
            ImageError: the file cannot be read any more.
        """
        return list(self._parameters().values())

    def set_parameter(self, name: str, data: Any) -> None:
        """Set a parameter's value, by its full name or the part behind the module's.

        Raises:
            PyBudaError: there is none of that name, or its shape is another.
        """
        own = self._parameters()
        found = [key for key in own if key == name] or [key for key in own if key.endswith(f".{name}")]
        if len(found) != 1:
            raise PyBudaError(
                f"the image {self.image.path} has {len(found) or 'no'} parameters {name!r}; it has "
                f"{', '.join(own) or 'none: it is of an earlier version, whose images kept constants alone'}"
            )
        own[found[0]].set_value(data)
        self._changed.add(found[0])

    def set_parameters(self, **kwargs: Any) -> None:
        """Set parameters by name, as ``set_parameter``; of names with dots a dict: ``**{"a.weight": t}``."""
        for name, value in kwargs.items():
            self.set_parameter(name, value)

    def load_parameter_dict(self, data: Mapping[str, Any]) -> None:
        """Set the values of all parameters that the dict names, as ``set_parameter``."""
        self.set_parameters(**data)

    def torch_module(self) -> nn.Module:
        """Return what runs on the device's first chip."""
        body, tensors = self._part()
        place = torch.device(device_type(), self.image.chip_ids[0])
        executable = Executable.of_data(self.image.path, body, tensors, place)
        runner = _Runner(executable, is_training=self.image.is_compiled_for_training())
        with torch.no_grad():
            for name in self._changed:
                runner.own[name].copy_(self._parameters()[name].value())
        return runner

    def _parameters(self) -> dict[str, Parameter]:
        if self._known is None:
            body, tensors = self._part()
            trained = {str(each) for each in body.get("requires_grad", ())}
            sources = sources_of(self.image.path, body, tensors)
            self._known = {
                name: Parameter(tensors[key], requires_grad=key in trained, name=name)
                for key, name in sources.items()
            }
        return self._known

    def _part(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return header and tensors of the modules, or of the loss."""
        body, tensors = file.read(self.image.path)
        if not isinstance(trained := body.get("requires_grad", []), list):
            raise ImageError(f"{self.image.path}: the file is damaged: its trained tensors are {trained!r}")
        if not self._is_loss:
            return body, {name: each for name, each in tensors.items() if not name.startswith(_LOSS)}
        own = {name.removeprefix(_LOSS): each for name, each in tensors.items() if name.startswith(_LOSS)}
        try:
            return {**body[_KEY]["training"]["loss"], "plan": body["plan"]}, own
        except (LookupError, TypeError) as error:
            raise ImageError(f"{self.image.path}: the file is damaged: its loss is {error!r}") from error


class _Runner(nn.Module):
    def __init__(self, executable: Executable, is_training: bool) -> None:
        super().__init__()
        self.executable = executable
        self._is_training = is_training
        self._is_placed = False
        # Not registered: modules have no parameters whose names have dots.
        self.own = {
            name: nn.Parameter(each.detach(), each.requires_grad)
            for name, each in executable.parameters.items()
        }
        self._recorded = executable.recorded(self.own.values())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over the names that parameters had in the modules of the image, and the parameters."""
        for name, value in self.own.items():
            yield f"{prefix}.{name}" if prefix else name, value

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = self._recorded(*values) if self._is_training else self.executable.run_flat(values)
        return flatten_outputs(made)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Runner:
        # It was made for its device's stage, and its tensors are there.
        if self._is_training and self._is_placed:
            raise PyBudaError(
                "an image for training has no modules to compare with: verify the device that it was made of"
            )
        self._is_placed = True
        return self


def compile_image(
    device: ChipDevice,
    img_path: str | os.PathLike[str] | None,
    sample_inputs: Sequence[Any],
    count: int,
    training: bool = False,
    sample_targets: Sequence[Any] = (),
    verify: Callable[[], None] = lambda: None,
) -> TTDeviceImage:
    """Compile the modules of a device for its chip, for training its loss too, and write them to a file.

    ``verify`` is called once it is clear that the device can be compiled for, before anything is written.

    Raises:
        PyBudaError: arch or devtype are left open, inputs or targets are missing, or training needs what an
            image cannot hold.
        LoomError: the compiler refuses the modules.
    """
    if device.arch is None or not device.devtype_given:
        raise PyBudaError(
            f"compile_to_image: device {device.name!r} needs arch= and devtype=, so that the image says what "
            "it is for"
        )
    if not sample_inputs:
        raise PyBudaError("compile_to_image needs sample_inputs, whose shapes are compiled for")
    if training:
        _check_training(device, sample_targets)
    verify()
    wanted = f"device_images/{device.name}.tti" if img_path is None else img_path
    try:
        path = Path(wanted)
        path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, TypeError, ValueError) as error:
        raise ImageError(f"{wanted!r}: the image cannot be written ({error})") from error
    inputs = [to_torch(value) for value in sample_inputs]
    stage = device.reference_stage()
    modules = stage.chosen_modules()
    if training:
        _set_modes(modules, device.make_stage().training_modes())
    executable = compiled(device, inputs, (), modules, training)
    body, tensors = _data(executable, InOrder(modules), stage)
    known: dict[str, Any] = {
        "name": device.name,
        "chip_ids": list(device.chip_ids),
        "arch": device.arch.to_string(),
        "devtype": device.devtype.to_string(),
        "microbatch_count": count,
        "modules": [module.name for module in device.modules],
    }
    if training:
        targets = [to_torch(value) for value in sample_targets]
        loss, losses = _compiled_loss(device, stage, [*device.output_shapes(inputs), *targets])
        known["training"] = {
            "targets": [list(value.shape) for value in targets],
            "loss": loss,
            "optimizer": None if device.optimizer is None else device.optimizer.to_data(),
        }
        tensors |= {f"{_LOSS}{name}": each for name, each in losses.items()}
    file.write(path, {**body, "is_training": training, _KEY: known}, tensors)
    return TTDeviceImage.load_from_disk(path)


def place_image(device: ChipDevice, image: TTDeviceImage) -> None:
    """Place what an image holds on a device: modules, and for training loss and optimizer.

    Raises:
        ImageError: the file is damaged.
    """
    module = ImageModule(image)
    device.place_module(module)
    training = image._training
    if training is None:
        return
    loss = ImageModule(image, is_loss=True)
    device.place_loss_module(loss)
    try:
        if training["optimizer"] is not None:
            own = [*module.get_parameters(), *loss.get_parameters()]
            device.optimizer = optimizers.of_data(training["optimizer"], own)
    except (LookupError, TypeError, ValueError, PyBudaError) as error:
        raise ImageError(f"{image.path}: the file is damaged: of training it says {error!r}") from error


def _check_training(device: ChipDevice, targets: Sequence[Any]) -> None:
    """Refuse what an image for training cannot hold."""
    if device.loss_module is None:
        raise PyBudaError(
            f"compile_to_image: training=True needs a loss: place_loss_module() on device {device.name!r}"
        )
    if not len(targets):
        raise PyBudaError(
            "compile_to_image: training=True needs sample_targets, whose shapes are compiled for"
        )
    if device.scheduler is not None:
        warnings.warn(
            f"device {device.name!r}: a scheduler is code and no part of the image; set `scheduler` of the "
            "device that load_image returns",
            stacklevel=4,  # who called TTDevice.compile_to_image
        )


def _set_modes(modules: Sequence[nn.Module], modes: Sequence[bool]) -> None:
    every = [inner for module in modules for inner in module.modules()]
    for inner, mode in zip(every, modes, strict=True):
        inner.training = mode


def _data(
    executable: Executable, module: nn.Module, stage: Stage, is_loss: bool = False
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return an executable as data; its parameters have the names of the stage's."""
    own = dict(module.named_parameters(remove_duplicate=False))
    keys = {id(own[source]): key for key, source in reversed(executable.sources.items()) if source in own}
    named = stage.parameters.named_parameters()
    # The stage that loads a loss puts its prefix before these names again.
    executable.sources = {
        keys[id(each)]: name.removeprefix("loss.") if is_loss else name
        for name, each in named
        if id(each) in keys
    }
    return executable.to_data()


def _compiled_loss(
    device: ChipDevice, stage: Stage, samples: Sequence[torch.Tensor]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the program of a stage's loss, for outputs and targets of these shapes, and its tensors."""
    assert isinstance(stage.loss, nn.Module)
    # PyTorch's own losses stay float32 under ``numerics.emulate``, too.
    more = {"numerics": "exact"} if isinstance(stage.loss, nn.modules.loss._Loss) else {}
    executable = compiled(device, samples, (), [stage.loss], True, **more)
    body, tensors = _data(executable, InOrder([stage.loss]), stage, is_loss=True)
    return {key: value for key, value in body.items() if key != "plan"}, tensors

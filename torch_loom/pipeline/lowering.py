"""How a module comes to run on a stage's device. The only file of the pipeline that knows the compiler."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn


class StageParameters(list[nn.Parameter]):
    """The parameters of a stage, in order: a list for an optimizer, and an object with ``parameters()``."""

    def __init__(self, named: dict[str, nn.Parameter]) -> None:
        super().__init__(named.values())
        self.named = named

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the parameters, as ``nn.Module.parameters``."""
        return iter(self)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over names and parameters, as ``nn.Module.named_parameters``."""
        return iter(self.named.items())


def spread(number: int, devices: Sequence[torch.device]) -> list[torch.device]:
    """Return the device of each of so many modules: as many on each as on any other, in order."""
    return [devices[place * len(devices) // number] for place in range(number)]


def place_modules(
    modules: list[nn.Module], devices: Sequence[torch.device], *, keep: bool
) -> list[nn.Module]:
    """Return the modules as they run, each on its device: copies there, or the modules if ``keep``.

    Parameters that modules share stay shared in the copies. Until the compiler takes a stage's graph, modules
    run op by op on the device: PyTorch's own numbers, exact in each dtype.
    """
    with torch.inference_mode(False):  # whose tensors could not be trained later
        made = {} if keep else {**_empty_copies(modules), **_copies(modules, devices)}
        placed = modules if keep else copy.deepcopy(modules, made)
        return [module.to(device) for module, device in zip(placed, devices, strict=True)]


def has_scripts(modules: list[nn.Module]) -> bool:
    """Whether TorchScript holds the parts of a module."""
    return any(isinstance(inner, torch.jit.ScriptModule) for module in modules for inner in module.modules())


def sketches(modules: list[nn.Module]) -> list[nn.Module]:
    """Return modules of the same parts and modes that share all values with these, to be traced."""
    made: dict[nn.Module | None, nn.Module] = {}
    for each in (inner for module in modules for inner in module.modules()):
        made[each] = copied = object.__new__(type(each))  # a class may ask its own for arguments
        own = copied.__dict__ = dict(each.__dict__)
        for name in ("_parameters", "_buffers"):
            own[name] = dict(own[name])
    for copied in made.values():
        parts = copied._modules.items()
        copied.__dict__["_modules"] = {name: made.get(part) for name, part in parts}
    return [made[module] for module in modules]


def _copies(modules: list[nn.Module], devices: Sequence[torch.device]) -> dict[int, Any]:
    """Copies of parameters, by id, on the device that all are for: none is copied on the host first."""
    if len(set(devices)) > 1:
        return {}
    every = {
        parameter
        for module in modules
        for parameter in module.parameters()
        if type(parameter) is nn.Parameter
    }
    copies: dict[int, Any] = {
        id(each): nn.Parameter(each.detach().to(devices[0], copy=True), each.requires_grad) for each in every
    }
    buffers = {
        buffer for module in modules for buffer in module.buffers() if _moves_alone(buffer, devices[0])
    }
    copies.update({id(buffer): buffer.to(devices[0]) for buffer in buffers})
    return copies


def _moves_alone(buffer: torch.Tensor, device: torch.device) -> bool:
    """Whether its values are all that goes to a device: memory is shared with no other tensor there."""
    is_plain = type(buffer) is torch.Tensor and buffer.layout is torch.strided and not buffer.is_quantized
    return is_plain and buffer.device.type != device.type and not (buffer.requires_grad or vars(buffer))


def _empty_copies(modules: list[nn.Module]) -> dict[int, Any]:
    """Copies of what is empty in modules, as most of their containers are: ``deepcopy`` takes each apart."""
    inner = {each for module in modules for each in module.modules()}
    attributes = [value for each in inner for value in vars(each).values()]
    return {
        id(attribute): type(attribute)()
        for attribute in attributes
        if type(attribute) in (dict, OrderedDict, set, list) and not attribute
    }


def named_parameters(modules: dict[str, nn.Module]) -> dict[str, nn.Parameter]:
    """Return the parameters of several modules by name; a name of two modules gets its module's before it."""
    found: dict[str, nn.Parameter] = {}
    names = [name for module in modules.values() for name, _ in module.named_parameters()]
    for module_name, module in modules.items():
        for name, value in module.named_parameters():
            found[f"{module_name}.{name}" if names.count(name) > 1 else name] = value
    return found

"""Modules: what is placed on a device."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import nn

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.execution.runner import BudaRunner
from torch_loom.pybuda.parameter import Parameter
from torch_loom.pybuda.tensor import Tensor, to_torch


class Module:
    """A workload that can be placed on one device.

    Args:
        name: unique among the modules that are placed.
    """

    run_alone: ClassVar[Callable[[Module, tuple[Any, ...]], list[Tensor]]]
    """What ``run`` does; the run functions, which stand on modules, give it."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise PyBudaError(f"a module's name is a text, not {name!r}")
        self.name = name
        self._device: Any = None
        self.input_names: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process has no device of this process.
        return {**self.__dict__, "_device": None}

    def get_device(self) -> Any:
        """Return the device that the module is placed on, or None."""
        return self._device

    def get_name(self) -> str:
        """Return the module's name."""
        return self.name

    def set_device(self, device: Any) -> None:
        """Record the device that the module is placed on; ``Device.place_module`` calls it."""
        self._device = device

    def run(self, *args: Any) -> list[Tensor]:
        """Run inference on one input and return the outputs.

        Places the module on a device of its own unless it is placed.

        Raises:
            PyBudaError: other modules are placed on devices.
        """
        return Module.run_alone(self, args)

    def get_parameters(self) -> list[Parameter]:
        """Return the module's parameters."""
        return []

    def torch_module(self) -> nn.Module:
        """Return what runs: an ``nn.Module`` over torch tensors."""
        raise PyBudaError(f"{type(self).__name__} {self.name!r} cannot run on a device")


class PyTorchModule(Module):
    """A PyTorch module: it runs as it is on a CPU device, and as a copy on a TT device.

    Calling the wrapped module directly runs it in PyTorch whatever ``redirect_forward`` is; the original
    replaced its ``forward`` by an equal function.

    Raises:
        PyBudaError: ``module`` is no ``torch.nn.Module``.
    """

    def __init__(self, name: str, module: nn.Module, redirect_forward: bool = True) -> None:
        super().__init__(name)
        if not isinstance(module, nn.Module):
            raise PyBudaError(
                f"PyTorchModule {name!r} takes a torch.nn.Module, not {type(module).__name__}: wrap "
                "functions in a module"
            )
        self.module = module
        self.redirect_forward = redirect_forward
        self._added: dict[str, Parameter] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the PyTorch module and return what it returns."""
        return self.module(*map(_unwrapped, args), **{k: _unwrapped(v) for k, v in kwargs.items()})

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the PyTorch module, as ``forward``."""
        return self.forward(*args, **kwargs)

    def backward(self, *args: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Run backward from each (output, incoming loss) pair; gradients go to the module's parameters."""
        for output, loss in args:
            torch.autograd.backward([to_torch(output)], [to_torch(loss)], retain_graph=True)

    def cpu_eval_forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Run the module on the host and return its outputs as a tuple."""
        made = self.forward(*args, **kwargs)
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)

    def cpu_eval_backward(self, *args: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Run backward on the host, as ``backward``."""
        self.backward(*args)

    def add_parameter(self, name: str, parameter: Parameter, prepend_name: bool = False) -> None:
        """Add a parameter that the PyTorch module does not have, under ``name`` or ``module.name``.

        Raises:
            PyBudaError: there is one of that name.
        """
        key = f"{self.name}.{name}" if prepend_name else name
        if key in self._added or key in dict(self.module.named_parameters()):
            raise PyBudaError(f"module {self.name!r} has a parameter {key!r} already")
        parameter.set_name(key)
        self._added[key] = parameter

    def set_parameters(self, **kwargs: Any) -> None:
        """Set parameters by name; dots of PyTorch's names may be passed in a dict: ``**{"a.weight": t}``.

        Raises:
            PyBudaError: an unknown name or another shape.
        """
        known = dict(self.module.named_parameters())
        for name, value in kwargs.items():
            if name in self._added:
                self._added[name].set_value(value)
                continue
            if name not in known:
                raise PyBudaError(
                    f"module {self.name!r} has no parameter {name!r}; it has {', '.join(known) or 'none'}"
                )
            given = to_torch(value)
            if given.shape != known[name].shape:
                shape = tuple(known[name].shape)
                raise PyBudaError(f"parameter {name!r} has shape {shape}, not {tuple(given.shape)}")
            with torch.no_grad():
                known[name].copy_(given)

    def get_parameters(self) -> list[Parameter]:
        """Return the parameters, those of the PyTorch module first."""
        found = [
            Parameter(value.detach(), requires_grad=value.requires_grad, name=name)
            for name, value in self.module.named_parameters()
        ]
        return [*found, *self._added.values()]

    def torch_module(self) -> nn.Module:
        """Return the PyTorch module."""
        return self.module


class IntQueueHandle:
    """Names a queue of intermediate values: those of one output of an op."""

    def __init__(self, module: PyBudaModule, op_name: str, output_index: int) -> None:
        self.module, self.op_name, self.output_index = module, op_name, output_index


class PyBudaModule(Module):
    """The base of modules written in PyBuda: subclass it and write ``forward``.

    Assigned parameters and modules, also in lists and dicts, are registered; a parameter is called
    ``module.attribute``, a module ``parent.attribute``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._parameters: dict[str, Parameter] = {}
        self._constants: dict[str, Tensor | None] = {}
        self._constant_shapes: dict[str, tuple[int, ...] | None] = {}
        self._submodules: dict[str, PyBudaModule] = {}
        self._tapouts: list[IntQueueHandle] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__:
            cls.forward = _with_named_inputs(cls.__dict__["forward"])  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "name" and "_parameters" in self.__dict__:
            self._rename(value)
        object.__setattr__(self, name, value)
        if not name.startswith("_"):
            for key, found in _members(name, value):
                self._register(key, found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``."""
        return self.forward(*args, **kwargs)

    def pre_forward(self, *args: Any, **kwargs: Any) -> None:
        """Called before ``forward`` with its arguments; override it for logic of your own."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of the inputs; write this in a subclass."""
        raise PyBudaError(f"{type(self).__name__} has no forward(): write one")

    def add_parameter(self, name: str, parameter: Parameter, prepend_name: bool = False) -> None:
        """Add a parameter under ``name``, or ``module.name``.

        Raises:
            PyBudaError: there is one of that name.
        """
        key = f"{self.name}.{name}" if prepend_name else name
        if key in self._parameters:
            raise PyBudaError(f"module {self.name!r} has a parameter {key!r} already")
        self._parameters[key] = parameter
        if parameter.get_name() is None:
            parameter.set_name(key)

    def add_constant(
        self, name: str, prepend_name: bool = False, shape: tuple[int, ...] | None = None
    ) -> None:
        """Add a constant under ``name``, or ``module.name``; its value is set by ``set_constant``.

        Raises:
            PyBudaError: there is one of that name.
        """
        key = f"{self.name}.{name}" if prepend_name else name
        if key in self._constants:
            raise PyBudaError(f"module {self.name!r} has a constant {key!r} already")
        self._constant_shapes[key] = None if shape is None else tuple(shape)
        self._constants[key] = None if shape is None else Tensor(torch.zeros(tuple(shape)), constant=True)

    def get_constant(self, name: str) -> Tensor:
        """Return a constant.

        Raises:
            PyBudaError: there is none of that name, or it has no value.
        """
        key = self._key(self._constants, name, "constant")
        found = self._constants[key]
        if found is None:
            raise PyBudaError(f"constant {name!r} of module {self.name!r} has no value: set_constant() first")
        return found

    def set_constant(self, name: str, data: Any) -> None:
        """Set a constant's value.

        Raises:
            PyBudaError: there is none of that name, or its shape is another.
        """
        key = self._key(self._constants, name, "constant")
        value, shape = to_torch(data), self._constant_shapes[key]
        if shape is not None and tuple(value.shape) != shape:
            raise PyBudaError(f"constant {name!r} has shape {shape}, not {tuple(value.shape)}")
        self._constants[key] = Tensor(value, constant=True)

    def get_parameter(self, name: str) -> Parameter:
        """Return a parameter, by attribute or full name.

        Raises:
            PyBudaError: there is none of that name.
        """
        return self._parameters[self._key(self._parameters, name, "parameter")]

    def get_parameters(self, submodules: bool = True) -> list[Parameter]:
        """Return the parameters, by default those of sub-modules too."""
        found = list(self._parameters.values())
        if submodules:
            found += [p for module in self._submodules.values() for p in module.get_parameters()]
        return list({id(parameter): parameter for parameter in found}.values())

    def set_parameter(self, name: str, data: Any) -> None:
        """Set a parameter's value.

        Raises:
            PyBudaError: there is none of that name, or its shape is another.
        """
        self.get_parameter(name).set_value(data)

    def load_parameter_dict(self, data: dict[str, Any]) -> None:
        """Set the values of all parameters that the dict names, sub-modules' too.

        Raises:
            PyBudaError: an unknown name; nothing is set then.
        """
        known = {parameter.get_name(): parameter for parameter in self.get_parameters()}
        chosen = {name: known[name] if name in known else self.get_parameter(name) for name in data}
        for name, value in data.items():
            chosen[name].set_value(value)

    def insert_tapout_queue_for_op(self, op_name: str, output_index: int) -> IntQueueHandle:
        """Keep the values of one output of an op; ``Device.get_tapout_values`` returns them."""
        handle = IntQueueHandle(self, op_name, output_index)
        self._tapouts.append(handle)
        return handle

    def get_submodules(self) -> list[PyBudaModule]:
        """Return the modules within, at any depth."""
        found = list(self._submodules.values())
        return found + [inner for module in found for inner in module.get_submodules()]

    def named_constants(self) -> dict[str, Tensor]:
        """Return the constants that have values, those of sub-modules too, by full name."""
        return {
            f"{module.name}.{name}": value
            for module in [self, *self.get_submodules()]
            for name, value in module._constants.items()
            if value is not None
        }

    def torch_module(self) -> nn.Module:
        """Return what runs: an ``nn.Module`` that holds the parameters and calls ``forward``."""
        return BudaRunner(self)

    def forward_names(self) -> list[str]:
        """Return the names of the arguments of ``forward``."""
        return list(inspect.signature(self.forward).parameters)

    def _register(self, key: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._parameters[key] = value
            if value.get_name() is None:
                value.set_name(f"{self.name}.{key}")
        elif isinstance(value, PyBudaModule):
            self._submodules[key] = value
            value.name = f"{self.name}.{key}"

    def _rename(self, name: str) -> None:
        """Let names that were made from the module's follow it."""
        old = self.__dict__.get("name", name)
        for parameter in self._parameters.values():
            full = parameter.get_name() or ""
            if full.startswith(f"{old}."):
                parameter.set_name(f"{name}{full[len(old) :]}")
        for key, module in self._submodules.items():
            if module.name == f"{old}.{key}":
                module.name = f"{name}.{key}"

    def _key(self, known: dict[str, Any], name: str, kind: str) -> str:
        for key in (name, f"{self.name}.{name}", name.removeprefix(f"{self.name}.")):
            if key in known:
                return key
        raise PyBudaError(f"module {self.name!r} has no {kind} {name!r}; it has {', '.join(known) or 'none'}")


def _members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Parameter, PyBudaModule)):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _members(f"{name}_{key}", inner)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _members(f"{name}_{number}", inner)


def _unwrapped(value: Any) -> Any:
    return to_torch(value) if isinstance(value, (Tensor, Parameter)) else value


def _with_named_inputs(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Let `forward` take one dict of inputs by name, and call `pre_forward` before the outermost call."""

    @functools.wraps(forward)
    def run(self: PyBudaModule, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], dict) and not kwargs:
            kwargs = dict(args[0])
            args = ()
        if self.__dict__.get("_within"):
            return forward(self, *args, **kwargs)
        self.__dict__["_within"] = True
        try:
            self.pre_forward(*args, **kwargs)
            return forward(self, *args, **kwargs)
        finally:
            self.__dict__["_within"] = False

    return run

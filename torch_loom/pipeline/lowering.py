"""How a module comes to run on a stage's device. The only file of the pipeline that knows the compiler."""

from __future__ import annotations

import copy
import copyreg
import functools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
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


class Filling:
    """Fills tensors of a device with values of the host in a thread of its own, while the program goes on.

    Until ``finish`` has returned, nothing else may read or change either.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def copy(self, value: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return a copy of a value on a device; if it is large, one that is filled after ``start``."""
        if value.device.type != "cpu" or value.nbytes < _LARGE_BYTES:
            return value.to(device, copy=True)
        made = torch.empty_like(value, device=device)
        self._pairs.append((made, value))
        return made

    def start(self) -> None:
        """Begin to fill what ``copy`` has returned."""
        if self._pairs:
            run = functools.partial(self._fill, torch.is_inference_mode_enabled())
            self._thread = threading.Thread(target=run, name="loom copies of parameters", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait until all is filled.

        Raises:
            Exception: a copy failed; at each call.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _fill(self, in_inference_mode: bool) -> None:
        try:
            with torch.inference_mode(in_inference_mode), torch.no_grad():
                # One call: between calls the thread would wait for the interpreter.
                torch._foreach_copy_([to for to, _ in self._pairs], [value for _, value in self._pairs])
        except Exception as error:
            self._error = error
        self._pairs.clear()


_LARGE_BYTES = 64 << 10


def spread(number: int, devices: Sequence[torch.device]) -> list[torch.device]:
    """Return the device of each of so many modules: as many on each as on any other, in order."""
    return [devices[place * len(devices) // number] for place in range(number)]


def place_modules(
    modules: list[nn.Module], devices: Sequence[torch.device], filling: Filling, *, keep: bool
) -> list[nn.Module]:
    """Return the modules as they run, each on its device: copies there, or the modules if ``keep``.

    Parameters that modules share stay shared in the copies. Until the compiler takes a stage's graph, modules
    run op by op on the device: PyTorch's own numbers, exact in each dtype.

    Args:
        filling: copies values of the copies; they are there once it has finished.
    """
    placed = modules if keep else _copied(modules, devices, filling)
    return [module.to(device) for module, device in zip(placed, devices, strict=True)]


def _copied(modules: list[nn.Module], devices: Sequence[torch.device], filling: Filling) -> list[nn.Module]:
    """Return what ``copy.deepcopy`` does in a third of its time: it takes each number and each dict apart."""
    inner = {one for module in modules for one in module.modules()}
    attributes = [value for one in inner for value in vars(one).values()]
    made: dict[int, Any] = {
        id(one): type(one)() for one in attributes if type(one) in (dict, OrderedDict) and not one
    }
    if len(set(devices)) == 1:
        made.update(_copied_tensors(inner, devices[0], filling))
        filling.start()
        if not all(_reads_no_values(type(one)) for one in inner):
            filling.finish()
    plain = [one for one in inner if _is_copied_by_state(type(one))]
    made.update({id(one): object.__new__(type(one)) for one in plain})
    # Kept, so that no other object gets the id of a value.
    states: list[dict[str, Any]] = [one.__getstate__() for one in plain]  # type: ignore[no-untyped-call]
    for one, state in zip(plain, states, strict=True):
        made[id(one)].__setstate__({name: _copied_value(value, made) for name, value in state.items()})
    return copy.deepcopy(modules, made)


def _copied_value(value: Any, made: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _ATOMS or (kind is tuple and all(type(one) in _ATOMS for one in value)):
        return value
    if kind is not dict:
        return copy.deepcopy(value, made)
    copied = made.get(id(value))
    if copied is None:
        copied = made[id(value)] = {}
        for name, one in value.items():
            known = made.get(id(one))
            copied[name] = known if known is not None else copy.deepcopy(one, made)
    return copied


def _copied_tensors(modules: Iterable[nn.Module], device: torch.device, filling: Filling) -> dict[int, Any]:
    """Return copies on a device of parameters and buffers, by id: none is copied on the host first."""
    made: dict[int, Any] = {}
    for module in modules:
        for parameter in module._parameters.values():
            if type(parameter) is nn.Parameter and id(parameter) not in made:
                copied = filling.copy(parameter.detach(), device)
                made[id(parameter)] = nn.Parameter(copied, parameter.requires_grad)
        for buffer in module._buffers.values():
            # On the device already, it may lie in the memory of another, and stays there in a copy of both.
            if type(buffer) is not torch.Tensor or buffer.requires_grad or buffer.device == device:
                continue
            if id(buffer) not in made:
                made[id(buffer)] = filling.copy(buffer, device)
    return made


def _is_copied_by_state(kind: type[nn.Module]) -> bool:
    """Whether ``copy.deepcopy`` makes a new object and gives it a copy of the old one's state."""
    is_plain = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__"))
    is_asked = any(hasattr(kind, name) for name in ("__deepcopy__", "__getnewargs__", "__getnewargs_ex__"))
    return is_plain and not is_asked and kind not in copyreg.dispatch_table


def _reads_no_values(kind: type[nn.Module]) -> bool:
    """Whether copies and moves of such modules run PyTorch's own code alone."""
    own = (getattr(kind, name).__module__ for name in ("__setstate__", "_apply", "to"))
    return _is_copied_by_state(kind) and all(name.startswith("torch.") for name in own)


_ATOMS = frozenset((int, float, bool, str, type(None), torch.dtype))


def named_parameters(modules: dict[str, nn.Module]) -> dict[str, nn.Parameter]:
    """Return the parameters of several modules by name; a name of two modules gets its module's before it."""
    found: dict[str, nn.Parameter] = {}
    names = [name for module in modules.values() for name, _ in module.named_parameters()]
    for module_name, module in modules.items():
        for name, value in module.named_parameters():
            found[f"{module_name}.{name}" if names.count(name) > 1 else name] = value
    return found

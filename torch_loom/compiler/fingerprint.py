"""What a module computes, as a digest: its forward is run on the meta device, and every call is noted.

Far cheaper than an export, and it sees what runs: code of other files, patched functions, options of objects.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from torch_loom.compiler.capture import unchanged
from torch_loom.compiler.fast_path import layers_of
from torch_loom.compiler.frontend import state_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_NAMED = (torch.dtype, torch.layout, torch.memory_format)
_META = torch.device("meta")
_TORCH = os.path.dirname(torch.__file__)
# Their results are like the first operand. On the meta device PyTorch takes many calls of Python for each.
_NORMS = (functional.batch_norm, functional.layer_norm, torch.batch_norm, torch.layer_norm)


class _UnknownError(Exception):
    """Something has no digest."""


def fingerprint(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the digest of what a module does with inputs of these shapes; empty: it has none.

    Two modules with one digest call the same functions of torch on tensors of the same dtypes, shapes and
    strides, at the same lines. Values of parameters and inputs are no part of it. A module whose forward
    depends on values, or that reads tensors which are no parameters, has none.
    """
    notes: list[str] = [_surroundings(), *_structure(module), *layers_of(module)]
    try:
        with unchanged(module), torch.no_grad(), _META:
            trace = _Trace(notes)
            values = {name: trace.stand_in(tensor, name) for name, tensor in state_of(module).items()}
            given, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
            notes.append(str(spec))
            leaves = [
                trace.stand_in(leaf, "input") if isinstance(leaf, torch.Tensor) else leaf for leaf in given
            ]
            notes.append(trace.shown([leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]))
            own_args, own_kwargs = pytree.tree_unflatten(leaves, spec)
            with trace:
                result = torch.func.functional_call(module, values, own_args, own_kwargs, strict=False)
            outputs, spec = pytree.tree_flatten(result)
            notes += [str(spec), trace.shown(outputs)]
    except Exception:
        # Whatever cannot run without values: then nothing is known of it.
        return ""
    return hashlib.sha256("\n".join(notes).encode()).hexdigest()


class _Trace(TorchFunctionMode):
    """Notes each call of a function of torch, its arguments, results, and the program's line."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self._notes = notes
        self._numbers: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []  # what has a number keeps its id
        self._stand_ins: dict[int, torch.Tensor] = {}
        self._device: torch.device | None = None

    def stand_in(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return a tensor without contents; the same for the same tensor, so that what is tied stays tied."""
        kind = type(tensor)
        if kind not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            raise _UnknownError(kind)
        self._notes.append(f"{name} {tensor.device} {tensor.requires_grad}")
        self._device = self._device or tensor.device
        found = self._stand_ins.get(id(tensor))
        if found is None:
            found = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            self._stand_ins[id(tensor)] = found
        self._notes.append(self.shown(found))
        return found

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        text = f"{_name(function)}({self.shown(args)}, {self.shown(given)}) {_line()}"
        if function is _DEVICE:
            return self._device if args[0].device == _META else args[0].device
        args, given = _without_devices(function, args, given)
        is_norm = function in _NORMS and args
        result = torch.empty_like(args[0]) if is_norm else function(*args, **given)
        self._notes.append(f"{text} = {self.shown(result)}")
        return result

    def shown(self, value: Any) -> str:
        """Return a value as text that says all of it but the contents of tensors."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, tuple | list):
            return f"{type(value).__name__}[{','.join([self.shown(each) for each in value])}]"
        if isinstance(value, dict):
            return f"{{{','.join([f'{key!r}:{self.shown(each)}' for key, each in value.items()])}}}"
        if isinstance(value, slice):
            return f"slice[{self.shown([value.start, value.stop, value.step])}]"
        if isinstance(value, (*_NAMED, torch.device)):
            return str(value)
        if isinstance(value, type):
            return f"{value.__module__}.{value.__qualname__}"
        raise _UnknownError(type(value))

    def _tensor(self, value: torch.Tensor) -> str:
        number = self._numbers.get(id(value))
        if number is None:
            if value.device != _META:
                raise _UnknownError("a tensor with contents that is no parameter")
            number = self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
            return f"%{number}:{value.dtype}{tuple(value.shape)}{value.stride()}"
        return f"%{number}"


_DEVICE: Any = torch.Tensor.device.__get__


def _name(function: Any) -> str:
    own = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or str(function)
    # The getter of an attribute bears the attribute's name; a module's or an op's is the function's own.
    within = getattr(own, "__qualname__", None) or getattr(own, "__name__", "")
    return f"{getattr(function, '__module__', '')}.{within}.{name}"


def _without_devices(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Let everything be on the meta device."""
    if "device" in kwargs:
        kwargs = {**kwargs, "device": _META}
    if any(isinstance(argument, torch.device) for argument in args):
        args = tuple(_META if isinstance(argument, torch.device) else argument for argument in args)
    if getattr(function, "__name__", "") == "to" and len(args) > 1 and isinstance(args[1], str):
        args = (args[0], _META, *args[2:])
    return args, kwargs


def _line() -> str:
    """Return the line of the program, or of a library of modules, that calls torch."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    if frame is None:
        return ""
    file = frame.f_code.co_filename
    # The text of a graph module has a number of the process in the place of a file.
    return f"graph:{frame.f_lineno}" if file.startswith("<eval_with_key>") else f"{file}:{frame.f_lineno}"


def _structure(module: nn.Module) -> Iterator[str]:
    """The modules with their classes, and the state of the files that define these."""
    files = set()
    for name, each in module.named_modules(remove_duplicate=False):
        kind = type(each)
        yield f"{name} {kind.__module__}.{kind.__qualname__} {each.training}"
        files.add(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    for file in sorted(files):
        try:
            state = os.stat(file)
        except OSError:
            continue
        yield f"{file} {state.st_mtime_ns} {state.st_size}"


def _surroundings() -> str:
    """What changes functions of torch without being an argument."""
    cuda: Any = torch.backends.cuda
    kinds = ["cpu", torch._C._get_privateuse1_backend_name()]
    return str(
        (
            torch.get_default_dtype(),
            [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds],
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        )
    )

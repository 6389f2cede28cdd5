"""A program as data: ops by name, their arguments, and which results are outputs. Nothing in it is code."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from torch_loom.errors import ImageError

# Namespaces whose ops an image may call.
_NAMESPACES = ("aten", "loom_numerics")
# Those of them that touch more than their operands.
_REFUSED = ("from_file", "_print", "_assert_async", "set_", "record_stream", "_copy_from", "rename_")
# Those that read memory at the places that their operands say, unchecked, or hold pointers in tensors.
_UNCHECKED = re.compile(r"_reshape_alias|_sparse_.*tensor.*|_nested_view.*|fbgemm_.*|_?wrapped_.*pack.*")
# Ops that bear the names of Python's operators; anything else between underscores is an attribute.
_OPERATORS = ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__")
_NAMED: dict[str, dict[str, Any]] = {
    "layout": {"strided": torch.strided},
    "memory_format": {
        "contiguous_format": torch.contiguous_format,
        "preserve_format": torch.preserve_format,
        "channels_last": torch.channels_last,
        "channels_last_3d": torch.channels_last_3d,
    },
}


@dataclass(frozen=True)
class Call:
    """One op: the name of its result, the op ("aten::add.Tensor"), encoded arguments.

    Attributes:
        is_on_host: it runs on the host, with copies around it.
        source: the program's line that it comes from.
    """

    name: str
    op: str
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    is_on_host: bool = False
    source: str = ""


@dataclass(frozen=True)
class Program:
    """Calls in their order.

    Attributes:
        inputs: names of the inputs, with shape and dtype of each.
        tensors: names of parameters and constants.
        calls: the ops.
        outputs: encoded results, one an output.
        updates: parameters or buffers that take a result after each run, by name: the encoded result.
    """

    inputs: list[dict[str, Any]]
    tensors: list[str]
    calls: list[Call]
    outputs: list[Any]
    updates: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Program:
        """Return the program of JSON data, checked.

        Raises:
            ImageError: it names an op that images may not call, or a value that nothing has made.
        """
        try:
            calls = [Call(**call) for call in data["calls"]]
            program = cls(
                list(data["inputs"]),
                list(data["tensors"]),
                calls,
                list(data["outputs"]),
                dict(data["updates"]),
            )
            program.check()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, ImageError):
                raise
            raise ImageError(f"the program is malformed: {error!r}") from error
        return program

    def check(self) -> None:
        """Raise an ImageError unless values are made once, before their use, by ops that may be called."""
        known: set[str] = set()
        for name in [*(each["name"] for each in self.inputs), *self.tensors]:
            _add(name, known)
        for each in self.inputs:
            dtype_of(each["dtype"])
            if not isinstance(each["shape"], list) or not all(_is_size(size) for size in each["shape"]):
                raise ImageError(f"the input {each['name']!r} has the shape {each['shape']!r}, which is none")
        for call in self.calls:
            self._check_call(call, known)
            _add(call.name, known)
        for name in references([self.outputs, *self.updates.values()]):
            if name not in known:
                raise ImageError(f"the program returns {name!r}, which nothing makes")
        _check_encoded([self.outputs, *self.updates.values()])
        if unknown := self.updates.keys() - set(self.tensors):
            raise ImageError(f"the program changes {sorted(unknown)}, which are none of its tensors")

    def _check_call(self, call: Call, known: set[str]) -> None:
        if not isinstance(call.args, list) or not isinstance(call.kwargs, dict):
            raise ImageError(
                f"{call.name!r} has the arguments {call.args!r} and {call.kwargs!r}, which are none"
            )
        for name in references([call.args, *call.kwargs.values()]):
            if name not in known:
                raise ImageError(f"the program uses {name!r} in {call.name!r} before it is made")
        if call.op != "getitem":
            op_of(call.op)
            _check_encoded([call.args, *call.kwargs.values()])
        elif len(call.args) != 2 or "ref" not in call.args[0] or type(call.args[1]) is not int:
            raise ImageError(f"{call.name!r} takes {call.args!r}, and not one of several results")

    def fault(self, tensors: Mapping[str, torch.Tensor], device: torch.device) -> str | None:
        """Return what is wrong with the program whatever its inputs' values: the call, and what it raises.

        None: nothing is, judging by shapes and dtypes. Nothing is computed.
        """
        from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
            values: dict[str, Any] = {name: mode.from_tensor(each) for name, each in tensors.items()}
            for each in self.inputs:
                try:
                    values[each["name"]] = torch.empty(
                        each["shape"], dtype=dtype_of(each["dtype"]), device=device
                    )
                except RuntimeError as error:
                    return f"{each['name']}: {error}"
            for call in self.calls:
                try:
                    values[call.name] = self._step(call, device)(values)
                except (NotImplementedError, DynamicOutputShapeException):
                    return None
                except Exception as error:
                    first = str(error).partition("\n")[0]
                    return f"{call.name} ({call.op}): {type(error).__name__}: {first}"
        for name, result in self.updates.items():
            made = decode(result, values, device)
            if not isinstance(made, torch.Tensor) or made.shape != values[name].shape:
                return f"{name} cannot take the result {result!r}"
        return None

    def bind(self, tensors: Mapping[str, torch.Tensor], device: torch.device) -> Callable[..., list[Any]]:
        """Return a function of the inputs that runs the calls on a device.

        Args:
            tensors: the parameters and constants, on the device.
            device: where tensors are made.
        """
        last = self._last_uses()
        steps = [(self._step(call, device), call.name, last.get(call.name, ())) for call in self.calls]
        names = [each["name"] for each in self.inputs]

        def run(*inputs: Any) -> list[Any]:
            values: dict[str, Any] = dict(tensors)
            values.update(zip(names, inputs, strict=True))
            for step, name, dead in steps:
                values[name] = step(values)
                for each in dead:
                    del values[each]
            results = [decode(output, values, device) for output in self.outputs]
            return [*results, *(decode(update, values, device) for update in self.updates.values())]

        return run

    def _step(self, call: Call, device: torch.device) -> Callable[[Mapping[str, Any]], Any]:
        args, kwargs = call.args, call.kwargs
        if call.op == "getitem":
            source, index = args[0]["ref"], args[1]
            return lambda values: operator.getitem(values[source], index)
        op = op_of(call.op)
        if call.is_on_host:
            return lambda values: _on_host(
                op, decode(args, values, device), _keywords(kwargs, values, device)
            )
        return lambda values: op(*decode(args, values, device), **_keywords(kwargs, values, device))

    def _last_uses(self) -> dict[str, tuple[str, ...]]:
        """Which values are last used by a call."""
        kept = set(references([self.outputs, *self.updates.values()]))
        made = {call.name for call in self.calls}
        last: dict[str, str] = {}
        for call in self.calls:
            last[call.name] = call.name
            for name in references([call.args, *call.kwargs.values()]):
                last[name] = call.name
        dead: dict[str, list[str]] = {}
        for name, call_name in last.items():
            if name in made and name not in kept:
                dead.setdefault(call_name, []).append(name)
        return {name: tuple(values) for name, values in dead.items()}


def _add(name: Any, known: set[str]) -> None:
    if not isinstance(name, str) or name in known:
        raise ImageError(f"the program makes {name!r} twice, or it is no name")
    known.add(name)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


class _Anything(Mapping[str, Any]):
    """Has a value, None, for each name."""

    def __getitem__(self, name: str) -> Any:
        return None

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _check_encoded(values: list[Any]) -> None:
    for value in values:
        try:
            decode(value, _Anything(), torch.device("cpu"))
        except ImageError:
            raise
        except Exception as error:
            raise ImageError(f"the program has the value {value!r}, which is none ({error!r})") from error


def references(value: Any) -> list[str]:
    """Return the names of values in encoded arguments."""
    if isinstance(value, dict):
        if "ref" in value:
            return [value["ref"]]
        return [name for each in value.values() for name in references(each)]
    if isinstance(value, list | tuple):
        return [name for each in value for name in references(each)]
    return []


@functools.cache
def op_of(name: str) -> Any:
    """Return the op of a name, "aten::add.Tensor".

    Raises:
        ImageError: it is none that an image may call.
    """
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    is_attribute = base.startswith("__") and base not in _OPERATORS
    if namespace not in _NAMESPACES or base in _REFUSED or is_attribute or _UNCHECKED.fullmatch(base):
        raise ImageError(f"the program calls {name!r}, which no image may call")
    if namespace == "loom_numerics":
        import torch_loom.numerics  # noqa: F401 (registers them)
    try:
        op = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    except AttributeError:
        raise ImageError(f"the program calls {name!r}, which PyTorch {torch.__version__} lacks") from None
    # TorchScript's own functions have no kernels in the dispatcher: they write files and set modes.
    if not isinstance(op, torch._ops.OpOverload) or not torch._C._dispatch_has_kernel(str(op._name)):
        raise ImageError(f"the program calls {name!r}, which no image may call")
    if op._schema.is_mutable:
        raise ImageError(f"the program calls {name!r}, which changes its operands")
    return op


def _on_host(op: Any, args: Any, kwargs: Any) -> Any:
    from torch.utils._pytree import tree_map

    devices = [None]

    def to_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            devices.append(value.device)  # type: ignore[arg-type]
            return value.cpu()
        return value

    def back(value: Any) -> Any:
        return value.to(devices[-1]) if isinstance(value, torch.Tensor) and devices[-1] is not None else value

    result = op(*tree_map(to_host, args), **tree_map(to_host, kwargs))
    return tree_map(back, result)


def encode(value: Any, name_of: Callable[[Any], str | None]) -> Any:
    """Return an argument as JSON has it.

    Args:
        name_of: the name of a value that another call makes; None for any other value.
    """
    name = name_of(value)
    if name is not None:
        return {"ref": name}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": "cpu" if value.type == "cpu" else "own"}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return encode(int(value) if isinstance(value, torch.SymInt) else value.node.hint, name_of)
    if isinstance(value, Mapping):
        return {"map": {str(key): encode(each, name_of) for key, each in value.items()}}
    if isinstance(value, Sequence):
        return [encode(each, name_of) for each in value]
    raise ImageError(f"an argument of type {type(value).__name__} cannot be part of an image: {value!r}")


def decode(value: Any, values: Mapping[str, Any], device: torch.device) -> Any:
    """Return the argument that encoded data stands for."""
    if isinstance(value, list):
        return [decode(each, values, device) for each in value]
    if not isinstance(value, dict):
        return value
    if "ref" in value:
        return values[value["ref"]]
    for kind, each in value.items():
        if kind == "dtype":
            return dtype_of(each)
        if kind == "device":
            return torch.device("cpu") if each == "cpu" else device
        if kind in _NAMED:
            return _NAMED[kind][each]
        if kind == "float":
            return float(each)
        if kind == "complex":
            return complex(*each)
        if kind == "map":
            return {key: decode(item, values, device) for key, item in each.items()}
    return {key: decode(each, values, device) for key, each in value.items()}


def _keywords(given: Mapping[str, Any], values: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    # Each by itself: an argument may be called as a kind of encoded value is, "dtype" or "device".
    return {name: decode(each, values, device) for name, each in given.items()}


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a name, "float32".

    Raises:
        ImageError: PyTorch has none of this name.
    """
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ImageError(f"{name!r} is no dtype of PyTorch {torch.__version__}")
    return found

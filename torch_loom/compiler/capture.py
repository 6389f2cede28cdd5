"""The graph of a plain module, noted op by op in one forward without values.

A tenth of an export's time: nothing is proxied, no lines are noted, and no text is made of the graph. What is
not plain is left to the export (``frontend.py``), which has the same graph and says what it refuses.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _compiling_state_context
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_loom.compiler.inductor.fakes import stand_in
from torch_loom.compiler.ir import add_call
from torch_loom.image.arguments import CONSTANTS


class NotPlainError(Exception):
    """Something that only an export can tell."""


def captured(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    state: Mapping[str, torch.Tensor],
    device: torch.device,
) -> tuple[fx.Graph, dict[str, str], pytree.TreeSpec]:
    """Return the graph, the names in the module by placeholder, and how results are put together.

    Args:
        state: the module's parameters and buffers by name.
        device: where the graph has them and the inputs, wherever they are.

    Raises:
        NotPlainError: the module looks at values, changes itself, computes with tensors which are no
            parameters, or switches what PyTorch does meanwhile. Errors of the forward are raised as they are.
    """
    fakes: dict[int, torch.Tensor] = {}
    sources: dict[str, str] = {}
    values: dict[str, torch.Tensor] = {}
    with FakeTensorMode() as mode:
        mode.cache_enabled = False  # the recorder is one
        recorder = _Recorder(mode, device)
        for number, (name, tensor) in enumerate(state.items()):
            if id(tensor) not in fakes:
                fakes[id(tensor)] = recorder.placeholder(f"p_{number}", tensor)
                sources[f"p_{number}"] = name
            values[name] = fakes[id(tensor)]
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        given = [
            recorder.placeholder(name, leaf) if isinstance(leaf, torch.Tensor) else leaf
            for name, leaf in zip(_names_of(module, args, kwargs), leaves, strict=True)
        ]
        own_args, own_kwargs = pytree.tree_unflatten(given, spec)
        with unchanged(module) as has_changed, _as_in_an_export(), recorder:
            result = torch.func.functional_call(module, values, own_args, own_kwargs, strict=False)
            if has_changed():
                raise NotPlainError("the module changes itself")
    outputs, out_spec = pytree.tree_flatten(result)
    recorder.graph.output(tuple(recorder.named(output) for output in outputs))
    return recorder.graph, sources, out_spec


def changes_itself(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], state: Mapping[str, torch.Tensor]
) -> bool:
    """Return whether each forward changes what a module holds beside ``state``, so that the next may differ.

    What a first forward leaves for all later ones is no such change. It is run twice without values; False
    where that cannot be.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad(), unchanged(module):
        fakes: dict[int, torch.Tensor] = {}

        def fake(each: Any) -> Any:
            if not isinstance(each, torch.Tensor):
                return each
            if id(each) not in fakes:
                fakes[id(each)] = stand_in(mode, *_shown_tensor(each))
            return fakes[id(each)]

        try:
            values = {name: fake(each) for name, each in state.items()}
            given, named = pytree.tree_map(fake, (tuple(args), dict(kwargs)))
            torch.func.functional_call(module, values, given, named, strict=False)
            with unchanged(module) as has_changed:
                torch.func.functional_call(module, values, given, named, strict=False)
                return has_changed()
        except Exception:
            return False  # of what an export can do, this is not enough


class _Recorder(SchemaCheckMode):
    """Notes each op as it is called, before PyTorch takes it apart.

    Of the modes that may stand there PyTorch knows three classes; this is none but in name. What an op makes
    of operands of some shapes is asked once: equal layers take the results of the first.
    """

    def __init__(self, mode: FakeTensorMode, device: torch.device) -> None:
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch)  # type: ignore[no-untyped-call]
        self._device = device
        self.graph = fx.Graph()
        self._mode = mode
        self._nodes: dict[int, _Noted] = {}
        self._known: dict[Any, Any] = {}
        self._values: dict[Any, torch.Tensor] = {}

    def placeholder(self, name: str, tensor: torch.Tensor) -> Any:
        """Add a placeholder, and return what stands for the tensor in the forward."""
        if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            raise NotPlainError(f"a {type(tensor).__name__} of the layout {tensor.layout}")
        shown = _shown_tensor(tensor)._replace(device=self._device)
        fake = self._made(shown).requires_grad_(tensor.requires_grad)
        fake._is_param = isinstance(tensor, nn.Parameter)
        node = self.graph.create_node("placeholder", name, name=name)
        node.meta["val"] = fake
        self._nodes[id(fake)] = _Noted(weakref.ref(fake), node, shown)
        return fake

    def named(self, value: Any) -> Any:
        """Return the node of a tensor; another value as it is."""
        return self._named_and_shown(value)[0]

    def _named_and_shown(self, value: Any) -> tuple[Any, Any]:
        """Return a value as a node's argument and as a key says it: 1, 1.0 and True are three."""
        if isinstance(value, torch.Tensor):
            noted = self._nodes.get(id(value))
            if noted is None or noted.tensor() is not value:
                raise NotPlainError("a tensor that is neither a parameter nor made of one")
            return noted.node, noted.shown
        kind = type(value)
        if isinstance(value, tuple | list):
            both = [self._named_and_shown(each) for each in value]
            return kind([named for named, _ in both]), (kind, *(shown for _, shown in both))
        if isinstance(value, _PLAIN_VALUES):
            return value, (kind, repr(value) if kind is float else value)
        raise NotPlainError(kind)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.is_grad_enabled() or torch._C._is_any_autocast_enabled() or _is_transformed():
            raise NotPlainError("what PyTorch does is switched within the forward")
        given = kwargs or {}
        nodes, shown_args = self._named_and_shown(args)
        both = {name: self._named_and_shown(each) for name, each in given.items()}
        node = add_call(self.graph, func, nodes, {name: named for name, (named, _) in both.items()})
        key = (func, shown_args, tuple((name, shown) for name, (_, shown) in both.items()))
        known = self._known.get(key)
        if known is not None:
            result = args[0] if known is _FIRST_OPERAND else self._made(known)
        else:
            known = None if given else _plain_result(func, args)
            result = func(*args, **given) if known is None else self._made(known)
            known = known or _shown(result)
            if args and result is args[0]:
                if known == shown_args[1]:  # its shape and strides are as they were
                    self._known[key] = _FIRST_OPERAND
            elif not func._schema.is_mutable and not _is_among(result, args):
                self._known[key] = known
        self._take(result, node, known)
        return result

    def _made(self, shown: Any) -> Any:
        """Return new tensors without contents, as they are shown."""
        if isinstance(shown, _Shown):
            return stand_in(self._mode, *shown)
        kind, *parts = shown
        return kind([self._made(part) for part in parts])

    def _take(self, result: Any, node: fx.Node, shown: Any) -> None:
        """Note the node of each tensor of a result; ``shown``: the result as ``_shown`` says it."""
        if isinstance(result, FakeTensor):
            if shown is _FIRST_OPERAND:
                shown = self._nodes[id(result)].shown
            # PyTorch returns a copy of a new tensor that another name holds, so nodes have another.
            if shown not in self._values:
                self._values[shown] = self._made(shown)
            node.meta["val"] = self._values[shown]
            self._nodes[id(result)] = _Noted(weakref.ref(result), node, shown)
        elif type(result) in (tuple, list):
            parts = [self.graph.call_function(operator.getitem, (node, i)) for i in range(len(result))]
            for each, part, one_shown in zip(result, parts, shown[1:], strict=True):
                self._take(each, part, one_shown)
            node.meta["val"] = type(result)([part.meta["val"] for part in parts])
        else:
            raise NotPlainError(f"{node.target} returns a {type(result).__name__}")


class _Shown(NamedTuple):
    """All of a tensor but its contents."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class _Noted(NamedTuple):
    """A tensor of the forward, its node, and what it is."""

    tensor: weakref.ref[torch.Tensor]
    node: fx.Node
    shown: _Shown


def _shown_tensor(value: torch.Tensor) -> _Shown:
    return _Shown(value.shape, value.stride(), value.dtype, value.device)


def _shown(value: Any) -> Any:
    """Return what the tensors of a result are."""
    if isinstance(value, torch.Tensor):
        return _shown_tensor(value)
    return (type(value), *map(_shown, value)) if isinstance(value, tuple | list) else type(value)


def _plain_result(func: Any, args: tuple[Any, ...]) -> _Shown | None:
    """Return what an op of contiguous operands makes, where that is plain: PyTorch finds it in milliseconds.

    None: it is not, or the operands may be wrong.
    """
    x: Any = args[0] if args else None
    if not isinstance(x, torch.Tensor) or not x.is_contiguous() or not x.is_floating_point():
        return None
    if func is torch.ops.aten.conv2d.default:
        return _plain_convolution(*args)
    if func is torch.ops.aten.batch_norm.default:
        is_used = not args[5] and x.dim() > 1
        sizes, others = x.shape[1:2], args[1:5]
    elif func is torch.ops.aten.layer_norm.default:
        sizes, others = torch.Size(args[1]), args[2:4]
        is_used = x.shape[x.dim() - len(sizes) :] == sizes
    else:
        return _shown_tensor(x) if func in _ACTIVATIONS else None
    return (
        _shown_tensor(x)
        if is_used and all(other is None or other.shape == sizes for other in others)
        else None
    )


def _plain_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> _Shown | None:
    others = [each for each in (weight, bias) if each is not None]
    # A kernel that takes channels last gives them last, too. Of sizes of 1, only strides say where they are.
    is_plain = x.dim() == weight.dim() == 4 and all(
        each.stride() == _contiguous_strides(each.shape) for each in (x, weight)
    )
    is_one_kind = all(
        other.is_contiguous() and (other.dtype, other.device) == (x.dtype, x.device) for other in others
    )
    if (
        not is_plain
        or not is_one_kind
        or any(len(each) not in (1, 2) for each in (stride, padding, dilation))
    ):
        return None
    channels, inner = weight.shape[:2]
    if groups < 1 or channels % groups or x.shape[1] != inner * groups:
        return None
    if bias is not None and bias.shape != (channels,):
        return None
    sizes = [x.shape[0], channels]
    for place in (0, 1):
        step, edge, apart = (each[min(place, len(each) - 1)] for each in (stride, padding, dilation))
        room = x.shape[2 + place] + 2 * edge - apart * (weight.shape[2 + place] - 1) - 1
        if min(room, edge) < 0 or min(step, apart) < 1:
            return None
        sizes.append(room // step + 1)
    return None if 0 in sizes else _Shown(torch.Size(sizes), _contiguous_strides(sizes), x.dtype, x.device)


def _contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes)))


def _is_among(result: Any, args: tuple[Any, ...]) -> bool:
    """Whether an op returns one of its operands."""
    own = [id(leaf) for leaf in pytree.tree_leaves(args)]
    return any(id(leaf) in own for leaf in pytree.tree_leaves(result))


_FIRST_OPERAND = object()
"""Stands for the result of an op that returns its first operand, as ops in place do."""
_ACTIVATIONS = frozenset(
    getattr(torch.ops.aten, name).default for name in ("relu", "gelu", "silu", "sigmoid", "tanh")
)
_PLAIN_VALUES = (*CONSTANTS, torch.dtype, torch.device, torch.layout, torch.memory_format, complex)


class _Watch(TorchFunctionMode):
    """PyTorch's layers take no short ways while functions of torch are watched, as an export does."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _as_in_an_export() -> Iterator[None]:
    """What a forward can ask is what it is told in an export."""
    with ExitStack() as stack:
        flags = torch.backends.cudnn.flags(enabled=False)
        for each in (
            torch.no_grad(),
            flags,
            enable_python_dispatcher(),
            _compiling_state_context(),
            _Watch(),
        ):
            stack.enter_context(each)
        yield


def _is_transformed() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


def _names_of(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """What an export calls the inputs: the names of the forward's arguments, with the places in them."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    for path, _ in pytree.tree_leaves_with_path(dict(given)):
        yield "_".join(str(getattr(key, "idx", getattr(key, "key", ""))) for key in path)


@contextmanager
def unchanged(module: nn.Module) -> Iterator[Callable[[], bool]]:
    """Undo what a forward does to what a module holds: a tensor without contents must not stay there.

    Watched are its attributes and those of its program's objects, with the lists, dictionaries, sets and
    queues in them; not what objects of Python's library and PyTorch's are made of, such as loggers.

    Yields what tells whether there is something to undo.
    """
    kept = [(value, _contents(value)) for value in _held(module)]

    def has_changed() -> bool:
        return any(not _is_same(value, before) for value, before in kept)

    try:
        yield has_changed
    finally:
        for value, before in kept:
            if not _is_same(value, before):
                _set(value, before)


def _held(module: nn.Module) -> list[Any]:
    """Return the containers that a module and its objects are made of, and the objects with slots."""
    found: dict[int, Any] = {}
    objects: set[int] = set()
    waiting: list[Any] = [module]
    while waiting and len(found) < _MOST_WATCHED:
        value = waiting.pop()
        kind: Any = type(value)
        if id(value) in found or id(value) in objects:
            continue
        if kind is dict or issubclass(kind, _CONTAINERS):
            found[id(value)] = value
            inner = value.values() if issubclass(kind, dict) else value
            waiting += [each for each in inner if type(each) not in _FINAL]
        elif issubclass(kind, tuple):
            objects.add(id(value))
            waiting += value
        elif issubclass(kind, nn.Module) or _is_of_program(kind):
            attributes = getattr(value, "__dict__", None)
            if slots := _slots_of(kind):
                found[id(value)] = value
                waiting += _attributes(value, slots).values()
            else:
                objects.add(id(value))
            waiting += [attributes] if type(attributes) is dict else ()
    return list(found.values())


@lru_cache(maxsize=1024)
def _is_of_program(kind: Any) -> bool:
    root = kind.__module__.partition(".")[0]
    return not issubclass(kind, (type, torch.Tensor)) and root not in _LIBRARIES


def _slots(value: Any) -> tuple[str, ...]:
    """Return the names of an object's slots."""
    kind: Any = type(value)
    return _slots_of(kind)


@lru_cache(maxsize=1024)
def _slots_of(kind: Any) -> tuple[str, ...]:
    return tuple(
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, MemberDescriptorType) and _is_of_program(base)
    )


def _attributes(value: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _contents(value: Any) -> Any:
    """Return what a container has, or an object in its slots; a class of its own is not asked."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, set):
        return set(value)
    return list(value) if isinstance(value, list | deque) else _attributes(value, _slots(value))


def _is_same(value: Any, before: Any) -> bool:
    """Whether a container holds the very same objects as before."""
    now = value if isinstance(value, _CONTAINERS) else _attributes(value, _slots(value))
    if not now or len(now) != len(before):
        return not now and not before
    if isinstance(now, set):
        return bool(now == before)
    if isinstance(now, dict) and not all(map(operator.is_, now.values(), before.values())):
        return False
    return all(map(operator.is_, now, before))


def _set(value: Any, before: Any) -> None:
    if isinstance(value, _CONTAINERS):
        value.clear()
        value.extend(before) if isinstance(value, list | deque) else value.update(before)
        return
    for name in _slots(value):
        if name in before:
            setattr(value, name, before[name])
        elif hasattr(value, name):
            delattr(value, name)


_CONTAINERS = (dict, list, set, deque)
_FINAL = frozenset((nn.Parameter, torch.Tensor, str, int, float, bool, type(None), torch.dtype, torch.Size))
_LIBRARIES = frozenset((*sys.stdlib_module_names, "torch", "torch_loom"))
_MOST_WATCHED = 100_000
"""Containers of a module: of more, such as a table of lists, the rest is not watched."""

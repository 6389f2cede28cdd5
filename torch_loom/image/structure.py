"""How results are put together, as text: containers by name. Reading one imports nothing."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_loom.errors import ImageError

# As PyTorch's treespec_dumps has it, whose reader imports what the text names: enums and default factories.
_PROTOCOL = 1
_LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
_DEFAULTDICT, _RETURN_TYPES = "collections.defaultdict", "torch.return_types."
_FACTORIES: dict[str, Any] = {
    each.__qualname__: each for each in (bool, dict, float, int, list, set, str, tuple)
}
_TUPLE = ("builtins.tuple", "null")


def dumps(spec: pytree.TreeSpec) -> str:
    """Return a structure as text.

    A container that the text cannot have becomes a tuple of what lies in it, which stays as it is: named
    tuples and other classes that are not registered by a name, and dictionaries with keys that JSON lacks.
    """
    return json.dumps([_PROTOCOL, _written(spec)])


def _written(spec: pytree.TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return _LEAF
    name, context = _named(spec)
    return {"type": name, "context": context, "children_spec": [_written(child) for child in spec.children()]}


def _named(spec: pytree.TreeSpec) -> tuple[str, Any]:
    """Name a container, and write what else it needs."""
    kind: type[Any] = spec.type
    context: Any = spec.context
    if kind is defaultdict:
        factory, context = context
        name = getattr(factory, "__qualname__", "")
        if name in _FACTORIES and _FACTORIES[name] is factory and _are_json(context):
            made_by = {"default_factory_module": "builtins", "default_factory_name": name}
            return _DEFAULTDICT, {**made_by, "dict_context": context}
        kind = dict
    if kind in (dict, OrderedDict) and not _are_json(context):
        return _TUPLE
    if getattr(torch.return_types, kind.__name__, None) is kind:
        return _RETURN_TYPES + kind.__name__, "null"
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(kind)
    if known is None or known.serialized_type_name not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
        return _TUPLE
    try:
        written = (known.to_dumpable_context or json.dumps)(context)
        json.dumps(written)
    except Exception:  # a context that its class does not write
        return _TUPLE
    return known.serialized_type_name, written


def _are_json(keys: list[Any]) -> bool:
    return all(type(key) in (str, int, float, bool, type(None)) for key in keys)


def loads(text: Any) -> pytree.TreeSpec:
    """Return the structure of a text.

    Raises:
        ImageError: it is none, or names a container that images do not have, or that this program has not
            registered with PyTorch.
    """
    try:
        protocol, data = json.loads(text)
        if protocol != _PROTOCOL:
            raise ValueError(f"protocol {protocol!r}")
        return _read(data)
    except ImageError:
        raise
    except Exception as error:  # a context is read by the class that is registered for it
        raise ImageError(f"the structure of the results is malformed: {error!r}") from error


def _read(data: dict[str, Any]) -> pytree.TreeSpec:
    if data == _LEAF:
        return pytree.tree_structure(0)
    name, context = data["type"], data["context"]
    children = [_read(each) for each in data["children_spec"]]
    if name == _DEFAULTDICT:
        if context["default_factory_module"] != "builtins":
            raise ImageError(f"the structure of the results names {context!r}, which no image may call")
        factory = _FACTORIES[context["default_factory_name"]]
        return _checked(pytree.TreeSpec(defaultdict, [factory, context["dict_context"]], children))
    if name.startswith(_RETURN_TYPES):
        kind = getattr(torch.return_types, name.removeprefix(_RETURN_TYPES), None)
        if not isinstance(kind, type) or kind.__module__ != "torch.return_types":
            raise ImageError(f"the structure of the results is a {name!r}, which PyTorch lacks")
        return _checked(pytree.TreeSpec(kind, None, children))
    kind = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if kind is None:
        raise ImageError(
            f"the results are in a {name!r}, which this program has not registered: import what defines it, "
            "or call run_flat, which returns the results without structure"
        )
    read = pytree.SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context or json.loads
    return _checked(pytree.TreeSpec(kind, read(context), children))


def _checked(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Put it together once, of numbers, so that a wrong number of children is found before a run."""
    pytree.tree_unflatten([0] * spec.num_leaves, spec)
    return spec

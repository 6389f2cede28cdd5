"""The compiler's IR: ``torch.fx`` over ATen ops, with what loom knows of a node in ``node.meta["loom"]``."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from torch_loom.compiler.predicates import Named
from torch_loom.ops import family_of

KEY = "loom"
CONVOLUTIONS = (
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::convolution",
    "loom_numerics::convolution",
)
"""How names of ops begin that slide a window over their first operand."""


@dataclass
class Facts:
    """What passes have decided of a node.

    Attributes:
        host_reason: why it stays on the host; empty: it runs on the chip.
        fused_into: the name of the node in whose kernel it runs; empty: its own.
        source: the program's line that it comes from, and its module's path.
        format, accumulate, fidelity: the names of its data formats and of its math fidelity; empty: exact.
        role: ``"forward"``, ``"backward"`` or ``"optimizer"``.
        label: the name and the type that the program gave the op; empty: none.
        tags: what passes leave for one another.
    """

    host_reason: str = ""
    fused_into: str = ""
    source: str = ""
    module: str = ""
    format: str = ""
    accumulate: str = ""
    fidelity: str = ""
    role: str = "forward"
    label: tuple[str, str] = ("", "")
    tags: dict[str, Any] = field(default_factory=dict)


def facts(node: fx.Node) -> Facts:
    """Return the facts of a node, made where it has none."""
    own = node.meta.get(KEY)
    if own is None:
        own = node.meta[KEY] = Facts()
    return own


def op_name(node: fx.Node) -> str:
    """Return ``"aten::add.Tensor"``; the target's name where it is no op of a dispatcher."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name
        return f"{name}.{target._schema.overload_name}" if target._schema.overload_name else name
    return getattr(target, "__name__", str(target))


def shape_class(node: fx.Node) -> str:
    """Return the shape class of a node's op, as the op table has it."""
    return family_of(op_name(node)).shape_class


def computes(node: fx.Node) -> bool:
    """Return whether a node is an op that does something: no input, view, constant or ``getitem``."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    return shape_class(node) != "view" and not node.target.is_view


def add_call(
    graph: fx.Graph, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> fx.Node:
    """Add a call as ``graph.call_function`` does, whose name is made of the op's once."""
    return graph.create_node("call_function", target, args, kwargs or {}, _base_name(target))


@functools.cache
def _base_name(target: Any) -> str:
    return fx.Graph()._target_to_str(target)


def value_of(node: fx.Node) -> Any:
    """Return the fake tensor, or the structure of them, that stands for a node's result."""
    return node.meta.get("val")


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors_of(each)


def num_elements(value: Any) -> int:
    """Return how many elements a result has; sizes that are not known count as their hints."""
    return sum(math.prod(int(size) for size in each.shape) for each in tensors_of(value))


def num_bytes(value: Any) -> int:
    """Return how many bytes a result has."""
    return sum(math.prod(int(s) for s in each.shape) * each.dtype.itemsize for each in tensors_of(value))


def source_of(node: fx.Node) -> str:
    """Return the program's line that a node comes from: ``"model.py:12, forward"``; empty if unknown."""
    for line in reversed((node.stack_trace or "").strip().splitlines()):
        text = line.strip()
        if text.startswith("File ") and "torch/nn/modules" not in text:
            path, _, rest = text.removeprefix('File "').partition('", line ')
            number, _, function = rest.partition(", in ")
            return f"{path}:{number}, {function}" if function else f"{path}:{number}"
    return ""


def named(node: fx.Node) -> Named:
    """Return what predicates are asked about a node."""
    return Named(node.name, op_name(node), module_of(node), facts(node).label)


def module_of(node: fx.Node) -> str:
    """Return the path of the module whose forward a node comes from; empty: the outermost."""
    stack = node.meta.get("nn_module_stack") or {}
    path = ""
    for entry in stack.values():
        path = str(entry[0] if isinstance(entry, tuple) else entry)
    return path.removeprefix("L['self'].").removeprefix("L['self']")


def placed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a parameter or a buffer on a device, apart from autograd's graph.

    It still says whether it requires a gradient: ATen's products of matrices choose their kernels by that, so
    without it the last bits would not be eager's.
    """
    return tensor.detach().to(device).requires_grad_(tensor.requires_grad)

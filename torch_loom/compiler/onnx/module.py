"""The module that a graph becomes, which can be sent to other processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from torch_loom.errors import LoomError, OnnxError


@dataclass(frozen=True)
class _Ref:
    """Stands for a node in what is pickled."""

    name: str


class OnnxGraph(fx.GraphModule):
    """A graph module whose pickle has its nodes.

    That of ``fx.GraphModule`` has generated code, which is traced again where it is read: the operators'
    functions would run on proxies there, and they look at ranks and sizes.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        def taken(each: Any) -> Any:
            return _Ref(each.name) if isinstance(each, fx.Node) else each

        def encoded(value: Any) -> Any:
            return fx.node.map_aggregate(value, taken)

        nodes = [
            (node.op, node.name, node.target, encoded(node.args), encoded(node.kwargs))
            for node in self.graph.nodes
        ]
        own = {name: value for name, value in self.__dict__.items() if name != "_graph"}
        return _read, (own, nodes, dict(self.meta))


@contextlib.contextmanager
def named_errors(module: object) -> Iterator[None]:
    """While a module is compiled: what a node of an ONNX model refuses is an error that names the node.

    Raises:
        OnnxError: in the place of PyTorch's and Python's, for a module that was read from ONNX.
    """
    try:
        yield
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        is_own = isinstance(error, LoomError | torch.OutOfMemoryError) and not isinstance(error, OnnxError)
        if is_own or not isinstance(module, OnnxGraph):
            raise
        found = re.search(r"While executing %(\w+)", str(error))
        place = f"node {found[1]!r} of the ONNX model" if found else "the ONNX model"
        reason = str(error).strip().partition("\n")[0]
        raise OnnxError(f"{place} cannot be computed: {reason}") from error


def _read(own: dict[str, Any], nodes: list[Any], meta: dict[str, Any]) -> OnnxGraph:
    graph, made = fx.Graph(), dict[str, fx.Node]()

    def decoded(value: Any) -> Any:
        return fx.node.map_aggregate(value, lambda each: made[each.name] if isinstance(each, _Ref) else each)

    for op, name, target, args, kwargs in nodes:
        made[name] = graph.create_node(op, target, decoded(args), decoded(kwargs), name=name)
    root = nn.Module()
    root.__dict__.update(own)
    module = OnnxGraph(root, graph, "OnnxGraph")
    module.meta.update(meta)
    return module

"""Nodes that have graphs of their own: If, Loop and Scan."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from torch_loom.compiler.onnx import file, names
from torch_loom.compiler.onnx.ops import control
from torch_loom.errors import OnnxError

if TYPE_CHECKING:
    from torch_loom.compiler.onnx.convert import Converter

Attributes = dict[str, Any]


def _body(converter: Converter, node: Any, inner: Converter, name: str) -> tuple[fx.Node, list[Any]]:
    """Keep a graph as a module, and return it with what it takes of the graph around it."""
    module = inner.module()
    captured = [
        converter.like() if not key else converter.argument(converter.value(key)) for key in inner.captured
    ]
    return converter.submodule(f"{names.node(node.name, node.op_type)}_{name}", module), captured


def _declared(graph: Any, num_states: int) -> list[tuple[Any, list[int] | None]]:
    """Return dtypes and sizes that a body declares for its outputs after the states; sizes by name are zero.

    So the stacked output of no rows has no elements in any case.
    """
    made = []
    for info in list(graph.output)[num_states:]:
        kind = info.type.tensor_type
        dims = [each.dim_value for each in kind.shape.dim] if kind.HasField("shape") else None
        made.append((file.DTYPES.get(kind.elem_type), dims))
    return made


def _outputs(converter: Converter, node: Any, made: fx.Node) -> list[fx.Node]:
    return [
        converter.call(operator.getitem, (made, number), {}, f"{made.name}_{number}")
        for number in range(len(node.output))
    ]


def _if(converter: Converter, node: Any, given: Sequence[Any], attributes: Attributes) -> list[fx.Node]:
    then, first = _body(converter, node, attributes["then_branch"], "then")
    otherwise, second = _body(converter, node, attributes["else_branch"], "else")
    args = (converter.argument(given[0]), then, otherwise, first, second)
    return _outputs(converter, node, converter.call(control.branch, args, {}, "branch"))


def _loop(converter: Converter, node: Any, given: Sequence[Any], attributes: Attributes) -> list[fx.Node]:
    body, captured = _body(converter, node, attributes["body"], "body")
    limit, condition, *states = [converter.argument(value) for value in given]
    declared = _declared(attributes["body"].proto, 1 + len(states))
    args = (limit, condition, states, body, captured, converter.like(), declared)
    return _outputs(converter, node, converter.call(control.loop, args, {}, "loop"))


def _scan(converter: Converter, node: Any, given: Sequence[Any], attributes: Attributes) -> list[fx.Node]:
    if converter.scope.versions.get("", 1) < 9:
        raise OnnxError("Scan is read from opset 9 on: convert the model with onnx.version_converter")
    body, captured = _body(converter, node, attributes["body"], "body")
    count = attributes["num_scan_inputs"]
    values = [converter.argument(value) for value in given]
    if not 1 <= count <= len(values):
        raise OnnxError(f"num_scan_inputs is {count}; of {len(values)} inputs it takes 1 to {len(values)}")
    states, inputs = values[: len(values) - count], values[len(values) - count :]
    args = (
        *(states, inputs, body, captured),
        list(attributes.get("scan_input_axes", [0] * count)),
        list(attributes.get("scan_input_directions", [0] * count)),
        list(attributes.get("scan_output_axes", [])),
        list(attributes.get("scan_output_directions", [])),
        _declared(attributes["body"].proto, len(states)),
    )
    return _outputs(converter, node, converter.call(control.scan, args, {}, "scan"))


BLOCKS: dict[str, Callable[[Any, Any, Sequence[Any], Attributes], list[fx.Node]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
"""How each is converted; attributes that are graphs come as converters of them."""

"""Operators that ONNX defines by others: their definition takes the node's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_loom.compiler.onnx import file
from torch_loom.errors import OnnxError

if TYPE_CHECKING:
    from torch_loom.compiler.onnx.convert import Converter


def body_of(domain: str, name: str, version: int) -> Any:
    """Return ONNX's definition of an operator by others, a ``FunctionProto``; None: there is none."""
    try:
        schema = file.package("onnx.defs").get_schema(name, version, domain)
    except Exception:  # no such operator, an error of C++ code
        return None
    return schema.function_body if schema.has_function else None


def expanded(
    converter: Converter, node: Any, domain: str, version: int, given: Sequence[Any]
) -> Sequence[Any]:
    """Convert the nodes of an operator's definition, and return the values of its outputs.

    Raises:
        OnnxError: ONNX has no definition of it.
    """
    body = body_of(domain, node.op_type, version)
    if body is None:
        raise OnnxError("it is not read, and ONNX does not define it by other operators")
    schema = file.package("onnx.defs").get_schema(node.op_type, version, domain)
    defaults = {name: each.default_value for name, each in schema.attributes.items()}
    attributes = {name: each for name, each in defaults.items() if each.type}
    attributes |= {each.name: each for each in body.attribute_proto}
    attributes |= {each.name: each for each in node.attribute}
    prefix = f"{node.name or node.output[0]}."
    names = dict(zip(body.input, [*node.input, *[""] * len(body.input)], strict=False))
    for name, value in zip(body.input, given, strict=False):
        if value is not None:
            converter.define(prefix + name, value)
            names[name] = prefix + name
    for inner in body.node:
        copy = type(inner)()
        copy.CopyFrom(inner)
        copy.name = f"{prefix}{inner.name or inner.op_type}"
        del copy.input[:], copy.output[:], copy.attribute[:]
        copy.input.extend(names.get(name, "") for name in inner.input)
        for name in inner.output:
            names[name] = prefix + name if name else ""
        copy.output.extend(names[name] for name in inner.output)
        copy.attribute.extend(_attributes(inner, attributes))
        converter.convert(copy)
    return [converter.value(names[name]) for name in list(body.output)[: len(node.output)]]


def _attributes(node: Any, given: dict[str, Any]) -> list[Any]:
    """Return a node's attributes, with those of the function in the place of references to them."""
    made = []
    for each in node.attribute:
        if not each.ref_attr_name:
            made.append(each)
        elif each.ref_attr_name in given:
            copy = type(each)()
            copy.CopyFrom(given[each.ref_attr_name])
            copy.name = each.name
            made.append(copy)
    return made

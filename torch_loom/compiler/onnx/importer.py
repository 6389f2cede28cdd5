"""From an ONNX model to a ``torch.fx`` graph module."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import fx

from torch_loom.compiler.onnx import file, ops
from torch_loom.compiler.onnx.blocks import BLOCKS
from torch_loom.compiler.onnx.convert import Converter
from torch_loom.compiler.onnx.functions import body_of
from torch_loom.compiler.onnx.table import find
from torch_loom.compiler.onnx.values import Scope
from torch_loom.errors import OnnxError

assert ops  # importing it fills the table
MAX_NAMED = 8


def load_onnx(
    model: str | os.PathLike[str] | Any, folder: str | os.PathLike[str] | None = None
) -> fx.GraphModule:
    """Read an ONNX model.

    Initialisers of floating point that have dimensions are parameters, under their names; other constants,
    and the running statistics of normalisations, are buffers. The arguments of ``forward`` are the model's
    inputs in their order; one output is returned as it is, several as a tuple. An input has as many
    dimensions as the model declares; sizes and dtypes may be others.

    A weight that the model uses twice is one parameter. PyTorch's exporters write equal vectors once, whether
    they are tied or not: of their models, each copy of a vector is a parameter of its own.

    Args:
        model: a path, or an ``onnx.ModelProto``.
        folder: where a model in memory has its external data.

    Raises:
        OnnxError: the package onnx is not installed; the file is damaged or unsafe; it has operators or types
            that are not read; a value has another type than its reader takes or the model declares.

    Example:
        >>> import torch, onnx, torch_loom
        >>> from torch_loom.compiler import load_onnx
        >>> graph = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["" : 17]>
        ...     relu (float[2, 2] x) => (float[2, 2] y) { y = Relu(x) }''')
        >>> load_onnx(graph)(torch.tensor([[-1.0, 2.0], [3.0, -4.0]]))
        tensor([[0., 2.],
                [3., 0.]])
    """
    proto, where = file.read(model, folder)
    name = str(model) if isinstance(model, str | os.PathLike) else "the model"
    proto = file.upgraded(proto, name)
    _refuse_unknown(proto, name)
    proto = file.check(proto, name)
    file.check_types(proto, name)
    versions = {each.domain: each.version for each in proto.opset_import}
    unties = proto.producer_name == "pytorch"
    ranks, declared = file.ranks(proto)
    scope = Scope(versions, where, ranks, declared, unties)
    module = Converter(scope, proto.graph).module()
    module.meta["name"] = os.path.basename(name) if isinstance(model, str | os.PathLike) else proto.graph.name
    return module


def _refuse_unknown(proto: Any, name: str) -> None:
    """Name all that is not read at once, so that a model is changed once."""
    versions = {each.domain: each.version for each in proto.opset_import}
    own = {(function.domain, function.name) for function in proto.functions}
    unknown: Counter[str] = Counter()
    first: dict[str, str] = {}
    for node in _nodes(proto):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (node.domain, node.op_type) in own or domain not in versions:
            continue
        if is_known(domain, node.op_type, versions[domain]):
            continue
        text = f"{node.op_type} ({domain or 'ai.onnx'} opset {versions[domain]})"
        unknown[text] += 1
        first.setdefault(text, node.name or next(iter(node.output), ""))
    if unknown:
        some = [
            f"{text}, {count} of them, the first {first[text]!r}" if count > 1 else f"{text}, {first[text]!r}"
            for text, count in unknown.most_common(MAX_NAMED)
        ]
        raise OnnxError(
            f"{name}: operators that are not read: {'; '.join(some)}"
            f"{' and others' if len(unknown) > len(some) else ''}. Export the model with other operators, or "
            "register a function for each with torch_loom.compiler.onnx.op"
        )


def is_known(domain: str, name: str, version: int) -> bool:
    """Whether an operator has a function here, or a definition by other operators in ONNX."""
    if domain == "" and name in BLOCKS:
        return True
    return find(domain, name, version) is not None or body_of(domain, name, version) is not None


def _nodes(proto: Any) -> Iterator[Any]:
    for graph, _ in file.graphs(proto.graph):
        yield from graph.node
    for function in proto.functions:
        yield from function.node

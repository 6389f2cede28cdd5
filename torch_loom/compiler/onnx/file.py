"""Reads untrusted ONNX files: sizes, structure and paths are checked first."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torch_loom.config.files import no_file
from torch_loom.errors import OnnxError

MAX_MODEL_BYTES = 2 << 30
"""A protobuf cannot be larger; weights beyond it are in files beside it."""
MAX_NODES = 200_000
MAX_DEPTH = 16
"""Of graphs in the attributes of nodes."""
MAX_GRAPHS = 4096
"""Each becomes a module."""
FIRST_OPSET = 7
"""Models of earlier versions are converted to it by ONNX's own version converter."""

DTYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    14: torch.complex64,
    15: torch.complex128,
    16: torch.bfloat16,
    17: torch.float8_e4m3fn,
    18: torch.float8_e4m3fnuz,
    19: torch.float8_e5m2,
    20: torch.float8_e5m2fnuz,
    24: torch.float8_e8m0fnu,
}
"""PyTorch's dtypes by the numbers of ``TensorProto.DataType``."""


def package(name: str = "onnx") -> Any:
    """Return a module of the package onnx.

    Raises:
        OnnxError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OnnxError(
            f"reading ONNX models needs the package onnx ({error}): pip install 'onnx>=1.19'"
        ) from error


def is_model(value: Any) -> bool:
    """Whether it is an ONNX model in memory, by its class's name, so that onnx need not be imported."""
    return type(value).__name__ == "ModelProto" and hasattr(value, "opset_import")


def read(model: Any, folder: str | os.PathLike[str] | None = None) -> tuple[Any, Path | None]:
    """Return a checked ``ModelProto`` and the folder of its other files.

    Args:
        model: a path, or a ``ModelProto``, which is not changed.
        folder: where a model in memory has its external data.

    Raises:
        OnnxError: it is no model, is damaged, too large or too deep.
    """
    onnx = package()
    if is_model(model):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
        return _checked(proto, "the model"), None if folder is None else Path(folder)
    if not isinstance(model, str | os.PathLike):
        raise OnnxError(f"an ONNX model is a path or a ModelProto, not a {type(model).__name__}")
    path = Path(model)
    if (reason := no_file(path)) is not None:
        raise OnnxError(f"{path}: {reason}")
    size = path.stat().st_size
    if size > MAX_MODEL_BYTES:
        raise OnnxError(
            f"{path}: {size:,} bytes, and a model has {MAX_MODEL_BYTES:,} at most: save it with external data"
        )
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's own class, which depends on its implementation
        raise OnnxError(f"{path}: this is no ONNX model, or it is damaged ({error})") from error
    return _checked(proto, str(path)), path.parent


def _checked(proto: Any, name: str) -> Any:
    if not proto.HasField("graph") or not proto.opset_import:
        raise OnnxError(f"{name}: this is no ONNX model: it has no graph or no opset")
    num_nodes = 0
    for number, (graph, depth) in enumerate(_all_graphs(proto)):
        num_nodes += len(graph.node)
        if depth > MAX_DEPTH or number >= MAX_GRAPHS + len(proto.functions) or num_nodes > MAX_NODES:
            raise OnnxError(
                f"{name}: graphs nested more than {MAX_DEPTH} deep, more than {MAX_GRAPHS:,} graphs, or more "
                f"than {MAX_NODES:,} nodes, are not read"
            )
    return proto


def _all_graphs(proto: Any) -> Iterator[tuple[Any, int]]:
    """Yield the graphs of a model, with the bodies of its functions."""
    yield from graphs(proto.graph)
    for function in proto.functions:
        yield from graphs(function)


def upgraded(proto: Any, name: str) -> Any:
    """Return a model of an opset that the table has.

    Raises:
        OnnxError: ONNX's converter of versions does not take it; its sentence.
    """
    old = next((each.version for each in proto.opset_import if not each.domain), FIRST_OPSET)
    if old >= FIRST_OPSET:
        return proto
    try:
        return package("onnx.version_converter").convert_version(proto, FIRST_OPSET)
    except Exception as error:  # of classes of C++ code, among them RuntimeError and ValueError
        raise OnnxError(
            f"{name}: it is of opset {old}, and ONNX's converter cannot bring it to {FIRST_OPSET}: "
            f"{str(error).strip()}"
        ) from error


def check(proto: Any, name: str) -> Any:
    """Return a model that ONNX's checker finds right, without local functions.

    Raises:
        OnnxError: the checker's sentence.
    """
    checker, inliner = package("onnx.checker"), package("onnx.inliner")
    try:
        # Files of external data are checked where they are read.
        checker.check_model(_without_external(proto))
        if not proto.functions:
            return proto
        _check_calls(proto, name)
        return _checked(inliner.inline_local_functions(proto), name)
    except OnnxError:
        raise
    except Exception as error:  # of classes of C++ code, among them RuntimeError and ValueError
        raise OnnxError(f"{name}: the model is not valid: {str(error).strip()}") from error


def _check_calls(proto: Any, name: str) -> None:
    """Count the nodes that a model has once its functions, of which none calls itself, are inlined.

    Raises:
        OnnxError: they are too many: a few functions that each call the next twice are enough.
    """
    bodies = {(function.domain, function.name, function.overload): function for function in proto.functions}
    counted: dict[tuple[str, str, str], int] = {}

    def count(body: Any) -> int:
        nodes = [node for graph, _ in graphs(body) for node in graph.node]
        return sum(1 + count_of((node.domain, node.op_type, node.overload)) for node in nodes)

    def count_of(key: tuple[str, str, str]) -> int:
        if key not in bodies:
            return 0
        if key not in counted:
            counted[key] = count(bodies[key])
        return counted[key]

    if (num_nodes := count(proto.graph)) > MAX_NODES:
        raise OnnxError(
            f"{name}: with the calls of its functions it has {num_nodes:,} nodes, and more than "
            f"{MAX_NODES:,} are not read"
        )


def _without_external(proto: Any) -> Any:
    """Return the model with empty tensors in the place of those that lie in files."""
    external = package().TensorProto.EXTERNAL
    if not any(tensor.data_location == external for tensor in _tensors(proto)):
        return proto
    bare = package().ModelProto()
    bare.CopyFrom(proto)
    for tensor in _tensors(bare):
        if tensor.data_location == external:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
            tensor.dims[:] = [0]
    return bare


def _tensors(proto: Any) -> Iterator[Any]:
    for graph, _ in _all_graphs(proto):
        yield from getattr(graph, "initializer", ())  # a function has none
        for node in graph.node:
            for attribute in node.attribute:
                yield from attribute.tensors
                if attribute.HasField("t"):
                    yield attribute.t


# In sentences of ONNX's inference that are about types, and not about shapes.
_OF_TYPES = ("inconsistent type", "unsupported type", "elem type differs", "TypeInferenceError")


def check_types(proto: Any, name: str) -> None:
    """Refuse a model whose values have other types than its operators take, or than it declares.

    Raises:
        OnnxError: which names the node and both types.
    """
    inputs = {each.name: each.type.tensor_type.elem_type for each in proto.graph.input}
    for each in proto.graph.initializer:
        if inputs.get(each.name, each.data_type) != each.data_type:
            raise OnnxError(
                f"{name}: types do not match: the initialiser {each.name!r} is {_type_name(each.data_type)}, "
                f"and the input of its name {_type_name(inputs[each.name])}"
            )
    bare = _without_weights(proto)
    for graph, _ in graphs(bare.graph):
        for node in graph.node:
            node.name = node.name or f"of {next(iter(node.output), '')!r}"
    try:
        package("onnx.shape_inference").infer_shapes(bare, check_type=True)
    except Exception as error:  # its own class, which depends on the version of onnx
        text = str(error).strip()
        if any(words in text for words in _OF_TYPES):
            raise OnnxError(f"{name}: types do not match: {text}") from error
        return
    declared = _types(bare.graph)
    for graph, depth in graphs(bare.graph):
        del graph.value_info[:]
        for info in (*(graph.input if depth else ()), *graph.output):
            info.type.Clear()
    try:
        inferred = _types(package("onnx.shape_inference").infer_shapes(bare).graph)
    except Exception:  # what is not known cannot be compared
        return
    for graph, _ in graphs(bare.graph):
        for node in graph.node:
            for each in node.output:
                given, said = inferred.get(each), declared.get(each)
                if given is not None and said is not None and given != said:
                    raise OnnxError(
                        f"{name}: types do not match: {node.op_type} {node.name!r} gives {each!r} as "
                        f"{_type_name(given)}, and the model declares {_type_name(said)}"
                    )


def _type_name(number: int) -> str:
    return str(package().TensorProto.DataType.Name(number)).lower()


def _types(whole: Any) -> dict[str, int]:
    """Return the types of elements of tensors, of names that stand for one value."""
    found = {}
    for graph, _ in graphs(whole):
        for info in (*graph.input, *graph.value_info, *graph.output):
            if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type:
                found[info.name] = info.type.tensor_type.elem_type
    count = Counter(name for graph, _ in graphs(whole) for name in _defined(graph))
    return {name: kind for name, kind in found.items() if count[name] < 2}


def ranks(proto: Any) -> tuple[dict[str, int], frozenset[str]]:
    """Return the number of dimensions of values, and of which of them the model alone says it.

    ONNX's shape inference gives the others. It believes what a model declares, so it also runs without the
    declarations.
    """
    bare = _without_weights(proto)
    said = _inferred(bare)
    for graph, depth in graphs(bare.graph):
        del graph.value_info[:]
        for info in (*(graph.input if depth else ()), *graph.output):
            info.type.tensor_type.ClearField("shape")
    known = _inferred(bare)
    return {**said, **known}, frozenset(said.keys() - known.keys())


def _inferred(proto: Any) -> dict[str, int]:
    found = {}
    try:
        inferred = package("onnx.shape_inference").infer_shapes(proto)
    except Exception:  # what is not known is asked for when the model runs
        return {}
    for graph, _ in graphs(inferred.graph):
        for info in (*graph.input, *graph.value_info, *graph.output):
            kind = info.type.tensor_type
            if info.type.HasField("tensor_type") and kind.HasField("shape"):
                found[info.name] = len(kind.shape.dim)
        for each in graph.initializer:
            found[each.name] = len(each.dims)
    # Graphs that do not lie in each other may use a name for values of their own.
    count = Counter(name for graph, _ in graphs(inferred.graph) for name in _defined(graph))
    return {name: rank for name, rank in found.items() if count[name] < 2}


def _defined(graph: Any) -> set[str]:
    given = {each.name for each in (*graph.input, *graph.initializer)}
    return given | {name for node in graph.node for name in node.output}


_LARGE = 1024


def _without_weights(proto: Any) -> Any:
    """A copy whose weights are inputs: their values say nothing of shapes, and copying them takes time."""
    onnx, helper = package(), package("onnx.helper")
    bare = onnx.ModelProto(ir_version=max(proto.ir_version, 4), opset_import=proto.opset_import)
    graph = bare.graph
    graph.name = proto.graph.name
    graph.node.extend(proto.graph.node)
    graph.input.extend(proto.graph.input)
    graph.output.extend(proto.graph.output)
    graph.value_info.extend(proto.graph.value_info)
    known = {each.name for each in proto.graph.input}
    for each in proto.graph.initializer:
        if each.ByteSize() <= _LARGE and each.data_location != onnx.TensorProto.EXTERNAL:
            graph.initializer.append(each)
        elif each.name not in known:
            graph.input.append(helper.make_tensor_value_info(each.name, each.data_type, each.dims))
    return bare


_GRAPHS = (5, 10)  # AttributeProto.GRAPH and GRAPHS


def graphs(graph: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Yield a graph, those in the attributes of its nodes, and how deep each lies."""
    yield graph, depth
    if depth > MAX_DEPTH:
        return
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.type in _GRAPHS else ():
                yield from graphs(inner, depth + 1)


def tensor_of(proto: Any, folder: Path | None) -> torch.Tensor:
    """Return the tensor of a ``TensorProto``.

    Raises:
        OnnxError: a dtype that PyTorch lacks, sizes that contradict each other, a file outside of the folder.
    """
    dtype = dtype_of(proto.data_type, f"tensor {proto.name!r}")
    dims = list(proto.dims)
    if proto.data_location == package().TensorProto.EXTERNAL:
        return _external(proto, folder, dtype, dims)
    try:
        array = package("onnx.numpy_helper").to_array(proto)
    except Exception as error:
        raise OnnxError(f"tensor {proto.name!r} is damaged: {error}") from error
    return from_numpy(array, dtype)


def from_numpy(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return a copy as a tensor: dtypes that numpy lacks have the same bits in ml_dtypes'."""
    array = np.array(array, order="C")
    if dtype is torch.bool:  # a byte of a file may be neither 0 nor 1
        return torch.from_numpy(array.view(np.uint8)) != 0
    if array.dtype.kind == "V" or dtype in (torch.bfloat16, *_EIGHT_BITS):
        bits = np.int16 if dtype is torch.bfloat16 else np.uint8
        return torch.from_numpy(array.view(bits)).view(dtype)
    return torch.from_numpy(array)


_EIGHT_BITS = tuple(each for each in DTYPES.values() if each.is_floating_point and each.itemsize == 1)


def dtype_of(number: int, what: str) -> torch.dtype:
    """Return PyTorch's dtype.

    Raises:
        OnnxError: it has none.
    """
    if number not in DTYPES:
        names = {value: name for name, value in package().TensorProto.DataType.items()}
        raise OnnxError(
            f"{what} is of type {names.get(number, number)}, for which PyTorch has no arithmetic: convert it "
            "to another type in the model"
        )
    return DTYPES[number]


def _external(proto: Any, folder: Path | None, dtype: torch.dtype, dims: list[int]) -> torch.Tensor:
    """Read a stretch of a file that lies in the model's folder, or below it."""
    where = {entry.key: entry.value for entry in proto.external_data}
    location, name = where.get("location", ""), f"tensor {proto.name!r}"
    if folder is None:
        raise OnnxError(f"{name} lies in a file of its own, {location!r}: give the path of the model")
    given, root = Path(location), folder.resolve()
    path = root / given
    is_inside = location and not given.is_absolute() and ".." not in given.parts and ":" not in location
    if not is_inside or not path.resolve().is_relative_to(root):
        raise OnnxError(f"{name} names {location!r}, which is not in the model's folder: it is not read")
    if (reason := no_file(path)) is not None:
        raise OnnxError(f"{name} lies in {path}, and {reason}: keep it beside the model")
    count = int(np.prod(dims, dtype=object)) if dims else 1
    size = count * dtype.itemsize
    try:
        offset, length = int(where.get("offset", 0)), int(where.get("length", size))
    except ValueError as error:
        raise OnnxError(f"{name}: offset or length is no number ({error})") from error
    if min([*dims, offset, length], default=0) < 0 or length != size or offset + size > path.stat().st_size:
        raise OnnxError(
            f"{name} of shape {dims} takes {size:,} bytes, and {path} has {length:,} for it at {offset:,} of "
            f"{path.stat().st_size:,}"
        )
    if size == 0:
        return torch.empty(dims, dtype=dtype)
    with path.open("rb") as file:
        file.seek(offset)
        read = torch.frombuffer(bytearray(file.read(size)), dtype=dtype).reshape(dims)
    return read.view(torch.uint8) != 0 if dtype is torch.bool else read

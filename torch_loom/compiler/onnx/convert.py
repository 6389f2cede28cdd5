"""The nodes of an ONNX graph, one after another, as calls in a ``torch.fx`` graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from torch_loom.compiler.onnx import file, names, sizes
from torch_loom.compiler.onnx.blocks import BLOCKS
from torch_loom.compiler.onnx.calls import number_of, numbers_of, tensor_of_sizes, with_rank
from torch_loom.compiler.onnx.functions import expanded
from torch_loom.compiler.onnx.module import OnnxGraph
from torch_loom.compiler.onnx.table import Kind, Parameter, Rule, find
from torch_loom.compiler.onnx.values import Input, Known, Scope
from torch_loom.errors import OnnxError

MAX_FOLDED = 1 << 16
"""Elements of a constant that is computed while the model is read."""
MAX_COMBINED = 1 << 24
"""Elements of all inputs of such a constant, multiplied."""
# The numbers among their inputs and attributes say how large the result is.
_GROWING = frozenset(
    {"AveragePool", "Col2Im", "ConstantOfShape", "Conv", "ConvInteger", "ConvTranspose", "Expand", "LpPool"}
    | {"MaxPool", "MaxUnpool", "OneHot", "Pad", "QLinearConv", "Range", "Resize", "Tile", "Upsample"}
)
_DTYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "stash_dtype"})
_INTEGERS = (torch.int64, torch.int32)


class Converter:
    """Makes a graph module of one graph.

    Args:
        scope: what the model's graphs share.
        graph: a ``GraphProto``.
        outer: the converter of the graph around it, whose values it may use.
    """

    def __init__(self, scope: Scope, graph: Any, outer: Converter | None = None) -> None:
        self.scope, self.proto, self.outer = scope, graph, outer
        self.graph = fx.Graph()
        self.tracer = fx.proxy.GraphAppendingTracer(self.graph)
        self.root: dict[str, Any] = {}
        self.captured: dict[str, fx.Node] = {}
        self._values: dict[str, Any] = {}
        self._attributes: dict[int, fx.Node] = {}
        self._shapes: dict[fx.Node, fx.Node] = {}
        self._attribute_names, self._argument_names = names.Names(), names.Names()
        self._like: fx.Node | None = None
        self._inputs: list[Input] = []

    def module(self) -> fx.GraphModule:
        """Convert the graph, and return it as a module."""
        own = {each.name for each in self.proto.initializer}
        for each in self.proto.initializer:
            self._values[each.name] = Known(each.name, each, self.scope.folder, is_initializer=True)
        if self.proto.sparse_initializer:
            raise OnnxError("sparse initialisers are not read: save the model with dense ones")
        for info in self.proto.input:
            if info.name not in own:
                self._values[info.name] = self.placeholder(info.name)
                self._declare(info, self._values[info.name])
        if self.outer is None:
            self._check_inputs(own)
        for node in self.proto.node:
            self.convert(node)
        outputs = [self.argument(self.value(info.name)) for info in self.proto.output]
        self.graph.output(outputs[0] if len(outputs) == 1 and self.outer is None else tuple(outputs))
        self.graph.eliminate_dead_code()
        self.graph.lint()
        module = OnnxGraph(self.root, self.graph, "OnnxGraph")
        module.meta["inputs"] = self._inputs
        return module

    def _declare(self, info: Any, node: fx.Node) -> None:
        if not info.type.HasField("tensor_type"):
            self._inputs.append(Input(node.name, None, None))
            return
        if self._like is None:
            self._like = node
        kind = info.type.tensor_type
        dims = None
        if kind.HasField("shape"):
            dims = tuple(
                each.dim_value if each.HasField("dim_value") else each.dim_param or None
                for each in kind.shape.dim
            )
        self._inputs.append(Input(node.name, file.DTYPES.get(kind.elem_type), dims))

    def _check_inputs(self, own: set[str]) -> None:
        """Have the dimensions of inputs counted, which what is computed while reading relies on."""
        declared = [info.name for info in self.proto.input if info.name not in own]
        for name, each in zip(declared, self._inputs, strict=True):
            if each.dims is not None:
                args = (self._values[name], len(each.dims), f"its input {each}")
                self._values[name] = self.call(with_rank, args, {}, f"checked_{each.name}")

    def placeholder(self, name: str) -> fx.Node:
        """Add an argument."""
        # Arguments come first, also those that are found to be needed later.
        before = [node for node in self.graph.nodes if node.op == "placeholder"]
        with self.graph.inserting_after(before[-1]) if before else self.graph.inserting_before():
            return self.graph.placeholder(self._argument_names.argument(name))

    def value(self, name: str) -> Any:
        """Return the value of a name: a node, a known tensor, sizes, or None for an absent input.

        Raises:
            OnnxError: no earlier node computes it.
        """
        if not name:
            return None
        if name in self._values:
            return self._values[name]
        if self.outer is None:
            raise OnnxError(f"nothing computes {name!r} before it is used")
        value = self.outer.value(name)
        if isinstance(value, Known) and not value.is_weight:
            return value
        # What the graph around computes comes in as an argument.
        self.captured[name] = self._values[name] = self.placeholder(name)
        if isinstance(value, fx.Node) and self._like is None:
            self._like = self._values[name]
        return self._values[name]

    def argument(self, value: Any) -> Any:
        """Return a value as a node that gives a tensor."""
        if isinstance(value, Known):
            return self._constant(value)
        if isinstance(value, sizes.Sizes):
            kwargs = {} if value.dtype is torch.int64 else {"dtype": value.dtype}
            entries = sizes.entries(value.values)
            return self.call(tensor_of_sizes, (entries,), {"like": self.like(), **kwargs}, "sizes")
        return value

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> fx.Node:
        """Add a call."""
        return self.graph.create_node("call_function", function, tuple(args), kwargs, name=name)

    def like(self) -> fx.Node | None:
        """Return a node whose device new tensors are made on; None: the graph has no tensors."""
        if self._like is None and self.outer is not None:
            outer = self.outer
            while outer.outer is not None:
                outer = outer.outer
            if outer._like is not None:
                self._like = self.placeholder("like")
                self.captured[""] = self._like
        if self._like is None:
            self._like = next((attribute for attribute in self._attributes.values()), None)
        return self._like

    def submodule(self, name: str, module: nn.Module) -> fx.Node:
        """Keep a module under a free name, and return the node that gives it."""
        target = self._attribute_names.attribute(name)
        self.root[target] = module
        return self.graph.get_attr(target)

    def _constant(self, known: Known, is_state: bool = False) -> fx.Node:
        if id(known) not in self._attributes:
            target = self._attribute_names.attribute(known.name)
            tensor = known.tensor
            self.root[target] = nn.Parameter(tensor) if known.is_weight and not is_state else tensor
            # The graph is checked against its module only when there is one.
            self._attributes[id(known)] = self.graph.create_node("get_attr", target)
        return self._attributes[id(known)]

    def define(self, name: str, value: Any) -> None:
        """Give a value a name."""
        self._values[name] = value

    def convert(self, node: Any) -> None:
        """Convert a node.

        Raises:
            OnnxError: it is not read; the message names operator, opset and node.
        """
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = self.scope.versions.get(domain, 1)
        given = [self.value(name) for name in node.input]
        what = f"{node.op_type} ({domain or 'ai.onnx'} opset {version}), node {node.name or node.output[0]!r}"
        try:
            attributes = {each.name: self._attribute(each) for each in node.attribute}
            results = self._results(node, domain, version, given, attributes)
        except OnnxError as error:
            raise OnnxError(f"{what}: {error}") from error
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise OnnxError(f"{what} cannot be read: {str(error).partition(chr(10))[0]}") from error
        for name, result in zip(node.output, results, strict=False):
            if name:
                self._values[name] = result

    def _results(
        self, node: Any, domain: str, version: int, given: list[Any], attributes: dict[str, Any]
    ) -> Sequence[Any]:
        if domain == "":
            made = self._of_sizes(node, given, attributes)
            if made is not None:
                return [_constant_of(made, node.output[0])]
            if node.op_type == "Identity" and isinstance(given[0], Known):
                return [given[0].renamed(node.output[0]) if self.scope.unties else given[0]]
            if node.op_type in BLOCKS:
                return BLOCKS[node.op_type](self, node, given, attributes)
        rule = find(domain, node.op_type, version)
        if rule is None:
            return expanded(self, node, domain, version, given)
        unknown = attributes.keys() - rule.attributes - rule.special - {each.name for each in rule.inputs}
        if unknown:
            raise OnnxError(f"the attribute {min(unknown)!r} is not read")
        kwargs = {name: value for name, value in attributes.items() if name in rule.attributes}
        special = {"opset": version, "num_outputs": len(node.output)}
        kwargs |= {name: value for name, value in special.items() if name in rule.special}
        by_name = {each.name: attributes[each.name] for each in rule.inputs if each.name in attributes}
        if rule.is_pure and self._is_foldable(node, given, attributes):
            made = self._folded(node, rule, given, by_name, kwargs)
            if made is not None:
                return made
        if "like" in rule.special:
            kwargs["like"] = self.like()
        args = self._arguments(rule, given, by_name)
        if "numbers_dtype" in rule.special:
            kwargs["numbers_dtype"] = _numbers_dtype(rule, given, args)
        kwargs = {name: self._kept(node, name, value) for name, value in kwargs.items()}
        made = self.call(rule.function, args, kwargs, names.node(node.name, node.op_type))
        if not rule.has_many:
            return [made]
        return [
            self.call(operator.getitem, (made, number), {}, f"{made.name}_{number}") if name else None
            for number, name in enumerate(node.output)
        ]

    def _kept(self, node: Any, name: str, value: Any) -> Any:
        """Let the graph refer to tensors of attributes."""
        if isinstance(value, torch.Tensor):
            return self._constant(Known(f"{names.node(node.name, node.op_type)}_{name}", value))
        return value

    def _arguments(self, rule: Rule, given: Sequence[Any], by_name: dict[str, Any]) -> list[Any]:
        args = []
        for number, parameter in enumerate(rule.inputs):
            if parameter.is_variadic:
                args += [self._bound(parameter, value) for value in given[number:]]
            elif number < len(given) and given[number] is not None:
                args.append(self._bound(parameter, given[number]))
            else:
                args.append(by_name.get(parameter.name))
        if len(given) > len(rule.inputs) and not any(each.is_variadic for each in rule.inputs):
            raise OnnxError(f"it has {len(given)} inputs, of which {len(rule.inputs)} are read")
        while args and args[-1] is None:
            args.pop()
        return args

    def _bound(self, parameter: Parameter, value: Any) -> Any:
        """Return a value as the function wants it."""
        kind = parameter.kind
        if value is None or not kind.is_tensor:
            return None if value is None else self._numbers(kind, value)
        if kind is Kind.NUMBER:
            if isinstance(value, sizes.Sizes) and value.values.ndim == 0:
                return sizes.entries(value.values)
            if isinstance(value, Known) and not value.dims and not value.is_weight:
                return value.tensor.item()
        if kind is Kind.STATE and isinstance(value, Known):
            return self._constant(value, is_state=True)
        return self.argument(value)

    def _numbers(self, kind: Kind, value: Any) -> Any:
        if isinstance(value, Known):
            numbers = value.tensor.flatten().tolist()
        elif isinstance(value, sizes.Sizes):
            numbers = sizes.entries(value.values.reshape(-1))
        else:
            return self.call(numbers_of if kind.is_list else number_of, (value,), {}, "numbers")
        return numbers if kind.is_list else numbers[0]

    def _is_foldable(self, node: Any, given: Sequence[Any], attributes: dict[str, Any]) -> bool:
        if any(not isinstance(each, Known) or each.is_weight for each in given if each is not None):
            return False
        known = [each for each in given if each is not None]
        if any(math.prod(each.dims) > MAX_FOLDED for each in known):
            return False
        # Products and broadcasts of large constants are larger by far.
        if math.prod(max(math.prod(each.dims), 1) for each in known) > MAX_COMBINED:
            return False
        if node.op_type not in _GROWING:
            return True
        given = [each.tensor.flatten().tolist() for each in known if each.tensor.dtype is not torch.bool]
        numbers = [abs(number) for each in (*given, *_numbers_in(attributes)) for number in each]
        # A step of a range, or a stride, may be less than one.
        return bool(math.prod(max(each, 1 / each if each else 1) for each in numbers) <= MAX_FOLDED)

    def _folded(
        self, node: Any, rule: Rule, given: Sequence[Any], by_name: dict[str, Any], kwargs: dict[str, Any]
    ) -> list[Known] | None:
        """Compute it now; None: the result is too large to be kept."""
        args: list[Any] = []
        for number, parameter in enumerate(rule.inputs):
            if parameter.is_variadic:
                args += [each.tensor for each in given[number:]]
                break
            value = given[number] if number < len(given) else None
            if value is None:
                args.append(by_name.get(parameter.name))
            else:
                args.append(
                    value.tensor if parameter.kind.is_tensor else self._numbers(parameter.kind, value)
                )
        while args and args[-1] is None:
            args.pop()
        with torch.no_grad():
            made = rule.function(*args, **kwargs)
        results = list(made) if rule.has_many else [made]
        if not all(
            result is None or (isinstance(result, torch.Tensor) and result.numel() <= MAX_FOLDED)
            for result in results
        ):
            return None
        folder = self.scope.folder
        return [
            Known(name or "unused", result if result is None else result.contiguous(), folder)
            for name, result in zip(node.output, results, strict=False)
        ]

    def _of_sizes(self, node: Any, given: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """Return the sizes that a node computes; None: it computes something else."""
        if node.op_type in ("Shape", "Size"):
            return self._shape(node, given[0], attributes)
        if not any(isinstance(each, sizes.Sizes) for each in given):
            return None
        found = [_as_sizes(each) for each in given]
        if any(each is None and value is not None for each, value in zip(found, given, strict=True)):
            return None
        try:
            return sizes.compute(node.op_type, found, attributes)
        except NotImplementedError:
            return None

    def _shape(self, node: Any, value: Any, attributes: dict[str, Any]) -> Any:
        if isinstance(value, Known):
            dims: Any = value.dims
        elif isinstance(value, sizes.Sizes):
            dims = list(value.values.shape)
        elif isinstance(value, fx.Node) and node.input[0] in self.scope.ranks:
            name, rank = node.input[0], self.scope.ranks[node.input[0]]
            if name in self.scope.declared:
                value = self.call(
                    with_rank, (value, rank, f"its value {name!r}"), {}, f"checked_{value.name}"
                )
            dims = [self._size(value, axis) for axis in range(rank)]
        else:
            return None
        if node.op_type == "Shape":
            return sizes.Sizes(sizes.array(dims[slice(attributes.get("start", 0), attributes.get("end"))]))
        return sizes.compute("ReduceProd", [sizes.Sizes(sizes.array(dims))], {"keepdims": 0})

    def _size(self, node: fx.Node, axis: int) -> fx.Proxy:
        if node not in self._shapes:
            self._shapes[node] = self.call(getattr, (node, "shape"), {}, f"{node.name}_shape")
        made = self.call(operator.getitem, (self._shapes[node], axis), {}, f"{node.name}_size_{axis}")
        made.meta["is_size"] = True
        return fx.Proxy(made, self.tracer)

    def _attribute(self, proto: Any) -> Any:
        value = file.package("onnx.helper").get_attribute_value(proto)
        if proto.ref_attr_name:
            raise OnnxError(f"the attribute {proto.name!r} refers to one of a function that is not there")
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [each.decode(errors="replace") for each in value]
        kind = type(value).__name__
        if kind == "TensorProto":
            return file.tensor_of(value, self.scope.folder)
        if kind == "GraphProto":
            return Converter(self.scope, value, self)
        if kind in ("SparseTensorProto", "TypeProto"):
            raise OnnxError(f"the attribute {proto.name!r} is a {kind}, which is not read")
        if proto.name in _DTYPE_ATTRIBUTES and isinstance(value, int) and value:
            return file.dtype_of(value, f"the attribute {proto.name!r}")
        return value


def _numbers_in(attributes: dict[str, Any]) -> list[list[float]]:
    found = [
        list(attribute) if isinstance(attribute, list | tuple) else [attribute]
        for attribute in attributes.values()
    ]
    return [[number for number in each if isinstance(number, int | float)] for each in found]


def _as_sizes(value: Any) -> Any:
    if isinstance(value, Known) and value.dims in ([], *([n] for n in range(65))):
        tensor = value.tensor
        if tensor.dtype in (*_INTEGERS, torch.bool):
            return sizes.Sizes(sizes.array(tensor.tolist()), tensor.dtype)
    return value if isinstance(value, sizes.Sizes) else None


def _constant_of(values: sizes.Sizes, name: str) -> Any:
    """Return sizes as a constant if they are all known, else as they are."""
    if not values.is_known:
        return values
    tensor = torch.tensor(values.values.reshape(-1).tolist(), dtype=values.dtype)
    return Known(name, tensor.reshape(values.values.shape))


def _numbers_dtype(rule: Rule, given: Sequence[Any], args: Sequence[Any]) -> torch.dtype | None:
    """Return the dtype of inputs that come as Python numbers; None: no ``Number`` is one."""
    for parameter, value, bound in zip(rule.inputs, given, args, strict=False):
        if parameter.kind is Kind.NUMBER and bound is not None:
            if isinstance(value, sizes.Sizes):
                return value.dtype
            if isinstance(value, Known) and not isinstance(bound, fx.Node):
                return value.tensor.dtype
    return None

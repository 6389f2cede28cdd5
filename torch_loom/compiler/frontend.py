"""From a module to the functional graph of ATen ops that the passes take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils import _pytree as pytree

from torch_loom.compiler.capture import NotPlainError, captured, unchanged
from torch_loom.compiler.failures import check_dtypes, named_lines, without_noise
from torch_loom.compiler.fast_path import layers_of, taken
from torch_loom.compiler.in_place import without_writes
from torch_loom.compiler.ir import placed
from torch_loom.errors import CompilerOptionError, ExportError
from torch_loom.image import structure
from torch_loom.image.arguments import CONSTANTS
from torch_loom.image.folded import Folded
from torch_loom.image.program import Program

LABEL = "loom_op"
"""The key under which ``fx.traceback.annotate`` carries an op's own name and type into the graph."""

_CASTS = [getattr(torch.ops.aten.to, name) for name in ("dtype", "device", "dtype_layout", "other")]


@dataclass
class Exported:
    """The graph of a module, on the device.

    Attributes:
        graph: functional, of ATen ops.
        parameters: parameters, buffers and constants by their placeholder.
        sources: the name in the module of each of these that is a parameter or a buffer.
        updates: which output each buffer that a run changes takes, by its placeholder.
        specs: how results are put together.
    """

    graph: fx.GraphModule
    parameters: dict[str, torch.Tensor]
    sources: dict[str, str]
    updates: dict[str, int]
    specs: dict[str, Any]


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by every name that they have."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return {**parameters, **buffers}


def is_elsewhere(module: Any, device: torch.device) -> bool:
    """Whether a module has values that are not on the device."""
    return isinstance(module, nn.Module) and any(each.device != device for each in state_of(module).values())


def folded_of(
    module: Any,
    device: torch.device,
    sources: Mapping[str, str],
    parameters: Mapping[str, torch.Tensor],
    program: Program,
    names: Sequence[str],
) -> Folded | None:
    """Return what makes the constants of a module anew; None where no other code can change its parameters.

    Args:
        sources, parameters: names in the module and values, by placeholder.
        program, names: what computes the constants, and their placeholders.
    """
    own = state_of(module) if isinstance(module, nn.Module) else {}
    shared, others = {}, {}
    for name in program.tensors:
        source = own.get(sources.get(name, ""))
        if source is not None and source.device == device:
            shared[name] = source
        else:
            others[name] = parameters[name]
    # Of a module elsewhere the executable has a copy.
    if not names or (not shared and all(name in sources for name in others)):
        return None
    return Folded(program, names, shared, others, device)


def live_sources(sources: Mapping[str, str], program: Program, folded: Folded | None) -> dict[str, str]:
    """Return the names in the module of the tensors of which no constant was computed for good.

    Args:
        sources: all names, by placeholder.
        program, folded: what computed the constants, and what does so again, if anything does.
    """
    read = set() if folded is not None else set(program.tensors)
    return {name: source for name, source in sources.items() if name not in read}


def exported(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device,
    has_whole_layers: bool = True,
) -> Exported:
    """Export a module for a device.

    ``has_whole_layers``: what eager runs as one op is one (``fast_path.py``).

    Raises:
        CompilerOptionError: it is no module, or it changes its inputs.
        ExportError: it is no graph of ops of known sizes.
    """
    if not isinstance(module, nn.Module):
        raise CompilerOptionError(f"module is a {type(module).__name__}; a torch.nn.Module is compiled")
    with taken(list(layers_of(module).values()) if has_whole_layers else ()):
        program = _program(module, args, kwargs, device)
    signature = program.graph_signature
    values = {**program.state_dict, **program.constants}
    own = state_of(module)
    parameters: dict[str, torch.Tensor] = {}
    sources: dict[str, str] = {}
    by_target: dict[str, str] = {}
    for spec in signature.input_specs:
        target = spec.target
        if target is not None and isinstance(values.get(target), torch.Tensor):
            parameters[spec.arg.name] = placed(values[target], device)
            by_target[target] = spec.arg.name
            if target in own:
                sources[spec.arg.name] = target
    updates = {}
    for number, spec in enumerate(signature.output_specs):
        if spec.kind.name == "BUFFER_MUTATION":
            updates[by_target[spec.target]] = number
        elif spec.kind.name == "USER_INPUT_MUTATION":
            raise CompilerOptionError(
                f"the module changes its input {spec.target!r}: return the changed tensor instead"
            )
    out_spec: Any = program.call_spec.out_spec
    # Casts leave checks of shapes and dtypes, which the executable makes of its inputs.
    graph = program.graph_module.graph
    checks = torch.ops.aten._assert_tensor_metadata.default
    for node in graph.find_nodes(op="call_function", target=checks):
        graph.erase_node(node)
    # PyTorch holds the graph until the next export, and its fakes hold the values of constants.
    for node in graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(leaf, FakeTensor):
                leaf.constant = None
    _insert_constants(graph)
    _use_labels(graph)
    return Exported(program.graph_module, parameters, sources, updates, {"out": structure.dumps(out_spec)})


def plainly_exported(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> Exported:
    """Return what ``exported`` does of a module that is plain, in a tenth of its time.

    Nodes do not know their lines, modules and labels. Parameters stay where the module is, as on the device.

    Raises:
        NotPlainError: only an export can tell. Errors of the forward are raised as they are.
    """
    own = state_of(module)
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    homes = {each.device for each in (*own.values(), *leaves)}
    if homes != {device} and homes != {torch.device("cpu")}:
        raise NotPlainError("tensors are in several places")
    with without_noise():
        graph, sources, out_spec = captured(module, args, kwargs, own, device)
    made = _LazyGraphModule(nn.Module(), graph)
    check_dtypes(made)
    without_writes(graph)
    # An export takes these apart.
    if any(node.target in _CASTS for node in graph.nodes) or not _is_functional(made):
        raise NotPlainError("the module casts or writes to tensors")
    parameters = {name: placed(own[source], own[source].device) for name, source in sources.items()}
    return Exported(made, parameters, sources, {}, {"out": structure.dumps(out_spec)})


def _insert_constants(graph: fx.Graph) -> None:
    """Drop the placeholders of arguments that are no tensors: their values are part of the graph."""
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val", node)
        if isinstance(value, CONSTANTS):

            def constant(each: fx.Node, node: fx.Node = node, value: Any = value) -> Any:
                return value if each is node else each

            for user in list(node.users):
                user.args = fx.node.map_arg(user.args, constant)
                user.kwargs = fx.node.map_arg(user.kwargs, constant)
            graph.erase_node(node)


def _program(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device) -> Any:
    from torch.export import export
    from torch.export.passes import move_to_device_pass

    with torch.no_grad():
        with named_lines(), unchanged(module):  # an export that fails leaves what it has assigned
            program = export(module, args, kwargs, strict=False)
        _check_sizes(program.graph_module)
        check_dtypes(program.graph_module)
        if not _is_on(program, device):
            program = move_to_device_pass(program, str(device))
        without_writes(program.graph_module.graph)
        # Decomposing traces the graph again, only to make it functional.
        if _is_functional(program.graph_module):
            return program
        with without_noise():
            return program.run_decompositions({})


def _check_sizes(graph: fx.GraphModule) -> None:
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    from torch_loom.compiler.ir import op_name, source_of, tensors_of, value_of

    for node in graph.graph.nodes:
        if any(free_unbacked_symbols(tensor.shape) for tensor in tensors_of(value_of(node))):
            raise ExportError(
                f"{source_of(node) or 'the model'}: the size of what {op_name(node)} returns depends on the "
                "values of tensors, and a plan needs sizes. Return as much as there can be, with a mask, or "
                'use torch.compile(backend="loom")'
            )


def node_name(label: str) -> str:
    """Return the name that a node of the graph has for a label: letters, digits and underscores."""
    name = re.sub(r"\W+", "_", label, flags=re.ASCII)
    return f"_{name}" if name[:1].isdigit() else name


def _use_labels(graph: fx.Graph) -> None:
    """Let the op that does a label's work bear its name: its product, or else the last of its nodes."""
    from torch_loom.compiler.ir import computes, facts, shape_class

    groups: dict[tuple[str, str], list[fx.Node]] = {}
    for node in graph.nodes:
        label = (node.meta.get("custom") or {}).get(LABEL)
        if label is not None and computes(node):
            groups.setdefault(label, []).append(node)
    chosen = {}
    for label, nodes in groups.items():
        products = [each for each in nodes if shape_class(each) in ("matmul", "convolution", "attention")]
        chosen[(products or nodes)[-1]] = label
        for each in nodes:
            facts(each).label = label
    wanted = {node_name(name) for name, _ in chosen.values()}
    for node in graph.nodes:  # a label's name is not another op's, by chance
        if node.op == "call_function" and node not in chosen and node.name in wanted:
            node._rename(f"{node.name}_unnamed")
    for node, (name, _) in chosen.items():
        node._rename(node_name(name))


def _is_on(program: Any, device: torch.device) -> bool:
    from torch_loom.compiler.ir import tensors_of, value_of

    values = [*program.state_dict.values(), *program.constants.values()]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    for node in program.graph.nodes:
        tensors += tensors_of(value_of(node))
        if any(isinstance(each, torch.device) and each != device for each in node.kwargs.values()):
            return False
    return all(tensor.device == device for tensor in tensors)


def _is_functional(graph: fx.GraphModule) -> bool:
    for node in graph.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") != "getitem":
            schema = getattr(node.target, "_schema", None)
            # Assertions and control flow are the decomposition's to deal with.
            if schema is None or schema.is_mutable or not schema.returns or _updates_statistics(node):
                return False
        elif node.op in ("get_attr", "call_module", "call_method"):
            return False
    return True


def _updates_statistics(node: fx.Node) -> bool:
    """Whether a norm writes the mean and the variance that it is given, of which its schema says nothing."""
    norms = (torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default)
    return node.target in norms and bool(node.args[3] is not None and node.args[5])

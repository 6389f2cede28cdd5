"""The passes that choose data formats and math fidelity, and that make the numbers those of the formats."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from torch_loom.compiler import overrides
from torch_loom.compiler.ir import (
    Facts,
    add_call,
    computes,
    facts,
    named,
    op_name,
    shape_class,
    tensors_of,
    value_of,
)
from torch_loom.compiler.passes.runner import Context
from torch_loom.errors import CompilerOptionError
from torch_loom.numerics import DataFormat, ExponentFamily, MathFidelity, default_accumulate
from torch_loom.numerics._ops import NONE, WHOLE
from torch_loom.numerics.emulation.operands import within_range
from torch_loom.numerics.emulation.precision import Precision
from torch_loom.ops import family_of

_OF_DTYPE = {
    torch.float32: "Float32",
    torch.float64: "Float32",
    torch.float16: "Float16",
    torch.bfloat16: "Float16_b",
    torch.int8: "Int8",
    torch.int32: "Int32",
    torch.int64: "Int32",
    torch.bool: "Int8",
    torch.uint8: "Int8",
    torch.int16: "Int32",
}
_PRODUCTS = ("matmul", "convolution", "attention")
# Ops that give each element as it is, as nothing or with its other sign: of a block's values they make values
# of the same block.
_KEEPING = ("aten::relu", "aten::neg", "aten::abs")
_BIAS_FIRST = ("aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::addmv")
_KEEPING_INTEGERS = ("aten::relu",)  # not each value has its other sign
_WIDE = ("softmax", "normalisation", "loss", "reduction")


OPERANDS = "operands"
"""The key of a rule for operands: by place (None: all) a format, and whether of activations too."""

INTERMEDIATE = "intermediate"
"""The key of a rule for the format in which partial sums wait between blocks of a product."""

GRADIENT = "gradient"
"""The key of a rule for the format of a result's gradient."""


def infer_formats(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Give each op the format of its result, of its sums, and a fidelity.

    The dtype's format; over it ``default_df_override``, the rules of ``amp_level`` and those of
    ``configure_mixed_precision``, later calls before earlier.

    Raises:
        CompilerOptionError: formats of two exponent families meet in one op, where numbers are the formats'.
    """
    options = context.options
    rules, has_gradients = overrides.current().precisions, overrides.current().gradients
    for node in graph.graph.nodes:
        if not computes(node):
            continue
        own = facts(node)
        value = next(tensors_of(value_of(node)), None)
        if value is None:
            continue
        own.format = _OF_DTYPE.get(value.dtype, "Float32")
        if value.dtype.is_floating_point:
            if not options.is_exact:
                _limit_numbers(node)
            own.format = options.default_df_override or own.format
            own.fidelity = options.math_fidelity
            _apply_amp(own, shape_class(node), options.amp_level)
            op = named(node) if rules else None
            for predicate, rule in rules:
                if op is not None and predicate(op):
                    for key, name in rule.items():
                        if key in (OPERANDS, INTERMEDIATE, GRADIENT):
                            own.tags[key] = name
                        else:
                            setattr(own, key, name)
            own.accumulate = own.accumulate or options.accumulate_df or _accumulate(own.format)
            if has_gradients:
                own.tags.setdefault(GRADIENT, own.format)
    if not options.is_exact:  # exact numbers are the dtypes', which casts convert
        _check_families(graph)
    return graph


def _limit_numbers(node: fx.Node) -> None:
    """Let the numbers among an op's arguments be finite in a chip's formats where they are in float32."""

    def limited(value: Any) -> Any:
        return within_range(value) if type(value) is float else value

    if _has_float(node.args):
        node.args = fx.node.map_aggregate(node.args, limited)
    if node.kwargs:
        node.kwargs = fx.node.map_aggregate(node.kwargs, limited)


def _has_float(value: Any) -> bool:
    return type(value) is float or (isinstance(value, tuple | list) and any(map(_has_float, value)))


def _apply_amp(own: Any, kind: str, level: int) -> None:
    if own.role == "optimizer" and level >= 1:
        own.format, own.fidelity = "Float32", "HiFi4"
    elif level == 2 and kind in (*_PRODUCTS, *_WIDE):
        # The reference's Mixed_A or Mixed_B, by the family of the format that ops have otherwise.
        is_a = DataFormat[own.format].exponent_family is ExponentFamily.A
        block, wide = ("Bfp8", "Float16") if is_a else ("Bfp8_b", "Float16_b")
        if kind in _WIDE:
            own.format = wide
        else:
            own.format, own.accumulate = block, wide
            if not is_a:
                own.fidelity = "HiFi2"


def _accumulate(name: str) -> str:
    return default_accumulate([DataFormat[name]]).name


def _check_families(graph: fx.GraphModule) -> None:
    for node in graph.graph.nodes:
        if not computes(node):
            continue
        families = {
            DataFormat[facts(each).format].exponent_family.name: each.name
            for each in [*node.all_input_nodes, node]
            if computes(each) and facts(each).format and not DataFormat[facts(each).format].is_integer
        }
        if len(families) > 1:
            words = ", ".join(f"{name} of {family}" for family, name in sorted(families.items()))
            raise CompilerOptionError(
                f"{node.name}: formats of two exponent families meet ({words}). Take formats of one family: "
                "those that end in _b and Float32, or those that do not"
            )


def _keeps(node: fx.Node, name: str) -> bool:
    return op_name(node) in (_KEEPING_INTEGERS if DataFormat[name].is_integer else _KEEPING)


def quantise(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
    """Make every result one of its format, and matrix products those of the fidelity."""
    if context.options.numerics != "formats":
        return graph
    _warn_of_optimizers(graph)
    done: dict[tuple[fx.Node, str], fx.Node] = {}
    for node in list(graph.graph.nodes):
        own = facts(node)
        value = next(tensors_of(value_of(node)), None)
        if not computes(node) or not own.format or value is None or own.host_reason:
            continue
        if not value.dtype.is_floating_point:
            continue
        _quantise_named(graph, node, context)
        _quantise_operands(graph, node, own.format, done)
        if not isinstance(value_of(node), torch.Tensor):
            _quantise_parts(graph, node)
            continue
        _lower_product(graph, node)
        if _keeps(node, own.format) and _rounded_to(node.all_input_nodes[0]) == own.format:
            own.tags[_ROUNDED] = own.format
            continue
        waiting = own.tags.get(INTERMEDIATE, "")
        if waiting:
            _quantise_result(graph, node, replace(own, format=waiting))
        if own.format != "Float32" and (waiting or not _round_inside(node)):
            _quantise_result(graph, next(iter(node.users)) if waiting else node, own)
    graph.recompile()
    return graph


def _quantise_result(graph: fx.GraphModule, node: fx.Node, own: Facts) -> None:
    with graph.graph.inserting_after(node):
        rounded = _quantised(graph, node, own.format, own)
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
    rounded.meta["val"] = value_of(node)
    facts(rounded).fused_into = own.fused_into or node.name
    facts(rounded).format = own.format
    if own.tags.get("operand"):
        facts(rounded).tags["operand"] = True


def _quantise_parts(graph: fx.GraphModule, node: fx.Node) -> None:
    """Make the results of an op that has several, such as a recurrent layer, values of its format."""
    own = facts(node)
    if own.format == "Float32":
        return
    for part in [user for user in node.users if getattr(user.target, "__name__", "") == "getitem"]:
        value = value_of(part)
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            _quantise_result(graph, part, replace(own, fused_into=own.fused_into or node.name))


def _warn_of_optimizers(graph: fx.GraphModule) -> None:
    """Warn about an optimizer that divides by zero in its format, as Adam does in formats of few bits."""
    for node in graph.graph.nodes:
        own = facts(node)
        if own.role != "optimizer" or own.format in ("", "Float32"):
            continue
        why = _zero_divisor(node, DataFormat[own.format])
        if why:
            warnings.warn(
                f"the optimizer's ops are in {own.format}: {node.name} ({op_name(node)}) {why}, so that "
                "parameters can become infinite or NaN. amp_level=1 keeps the optimizer's ops in Float32",
                stacklevel=2,
            )
            return


def _zero_divisor(node: fx.Node, fmt: DataFormat) -> str:
    """Say why an op of an optimizer makes or takes a divisor of zero; empty: it does not."""
    name = op_name(node)
    if name == "aten::pow.Scalar" and isinstance(rate := node.args[0], (int, float)):
        rounded = torch.ops.loom_numerics.quantize(torch.tensor([float(rate)]), fmt.value).item()
        if rate != 1 and rounded == 1:
            return f"has the rate {rate}, which is 1 in this format, and the bias correction divides by zero"
    if name == "aten::addcdiv" and fmt.is_block:
        return (
            "divides by moments that share exponents in blocks: the small ones of a block are zero, and so "
            "is the epsilon beside them"
        )
    return ""


# The tag of a node whose result is of a format without a quantiser behind it: which one.
_ROUNDED = "rounded"


def _rounded_to(node: fx.Node) -> str:
    """The format that a result is of, its blocks along its last dimension; empty: it is not known."""
    if node.target is torch.ops.loom_numerics.quantize.default:
        return DataFormat(node.args[1]).name
    return str(facts(node).tags.get(_ROUNDED, ""))


def _format_of(node: Any) -> str:
    """The format that each element is of by itself, seen through views, which lay blocks out anew."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        source = node.all_input_nodes[0]
        if value_of(source).dtype != value_of(node).dtype:
            return ""
        node = source
    return _rounded_to(node)


def _round_inside(node: fx.Node) -> bool:
    """Have a product round its sums to the format of the result as it makes them, in one pass over them."""
    ops = torch.ops.loom_numerics
    name = facts(node).format
    formats = (DataFormat[name].value, *_of_gradient(facts(node)))
    if node.target is ops.matmul.default:
        node.args = (*node.args, False, *formats)
    elif node.target in (ops.linear.default, ops.convolution.default):
        node.args = (*node.args, *formats)
    else:
        return False
    facts(node).tags[_ROUNDED] = name
    return True


def _quantised(graph: fx.GraphModule, source: fx.Node, name: str, own: Facts) -> fx.Node:
    """A value in a format, and its gradient in that of the op, whose facts these are."""
    gradient = _of_gradient(own)
    args = (source, DataFormat[name].value, *((NONE, *gradient) if gradient else ()))
    return add_call(graph.graph, torch.ops.loom_numerics.quantize.default, args)


def _of_gradient(own: Facts) -> tuple[int, ...]:
    """The format of a result's gradient as the ops take it, if it has one."""
    name = own.tags.get(GRADIENT, "")
    return (DataFormat[name].value,) if name else ()


def _quantise_named(graph: fx.GraphModule, node: fx.Node, context: Context) -> None:
    """Round the operands whose formats a rule names: parameters, and activations where it says so."""
    for place, source in enumerate(_operands(node)):
        rule = facts(node).tags.get(OPERANDS, {})
        name, with_activations = rule.get(place, rule.get(None, ("", False)))
        value = value_of(source)
        if not name or not _is_rounded(value):
            continue
        if with_activations or _origin(source).name in context.parameters:
            with graph.graph.inserting_before(node):
                rounded = _quantised(graph, source, name, facts(node))
            rounded.meta["val"] = value
            facts(rounded).tags["operand"] = True
            facts(rounded).fused_into = facts(node).fused_into or node.name
            facts(rounded).format = name
            node.replace_input_with(source, rounded)


def _is_rounded(value: Any) -> bool:
    """Whether a value is one that formats are for; sparse matrices, which pick elements, are not."""
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return is_dense and value.dtype.is_floating_point


def _operands(node: fx.Node) -> list[fx.Node]:
    """The operands as PyBuda counts them: of a product with a bias, the bias last."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)  # all_input_nodes has each node once
    return [*found[1:], found[0]] if op_name(node) in _BIAS_FIRST else found


def _origin(node: fx.Node) -> fx.Node:
    """The node that a view is of."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        node = node.all_input_nodes[0]
    return node


def _quantise_operands(
    graph: fx.GraphModule, node: fx.Node, name: str, done: dict[tuple[fx.Node, str], fx.Node]
) -> None:
    """Inputs and parameters come in the format that the op has; what other ops made has been rounded.

    What is picked out of a table is rounded once it is picked, unless its neighbours decide its exponent.
    """
    picks = family_of(op_name(node)).lowering == "data.embedding"
    if name == "Float32" or (picks and not DataFormat[name].is_block):
        return
    for source in node.all_input_nodes:
        value = value_of(source)
        if _origin(source).op != "placeholder" or not _is_rounded(value):
            continue
        key = (source, name)
        if key not in done:
            with graph.graph.inserting_after(source):
                done[key] = _quantised(graph, source, name, facts(node))
            done[key].meta["val"] = value
            facts(done[key]).tags["operand"] = True
        node.replace_input_with(source, done[key])


def _lower_product(graph: fx.GraphModule, node: fx.Node) -> None:
    """Let a matrix product see the bits that its fidelity sees; another op stays as it is."""
    ops = torch.ops.loom_numerics
    name = op_name(node)
    if name in ("aten::mm", "aten::bmm", "aten::matmul", "aten::mv", "aten::dot"):
        left, right = node.args[:2]
        node.target, node.args = ops.matmul.default, (left, right, *_how(node, left, right))
    elif name == "aten::linear":
        left, right = node.args[:2]
        bias = node.args[2] if len(node.args) > 2 else None
        node.target, node.args = ops.linear.default, (left, right, bias, *_how(node, left, right))
    elif name in ("aten::addmm", "aten::baddbmm", "aten::addmv"):
        bias, left, right = node.args
        alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
        with graph.graph.inserting_before(node):
            inner = graph.graph.call_function(ops.matmul.default, (left, right, *_how(node, left, right)))
            parts = [inner]
            if alpha != 1 and beta != 0:
                parts.append(graph.graph.call_function(torch.ops.aten.mul.Tensor, (inner, alpha)))
        for part in parts:
            part.meta["val"] = node.meta["val"]
            facts(part).fused_into = node.name
        if beta == 0:  # what is added is not even read
            node.target, node.args, node.kwargs = torch.ops.aten.mul.Tensor, (inner, alpha), {}
        else:
            node.target, node.args = torch.ops.aten.add.Tensor, (parts[-1], bias)
            node.kwargs = {} if beta == 1 else {"alpha": beta}
    elif name == "aten::conv2d":
        _lower_convolution(node)


def _how(node: fx.Node, left: Any, right: Any) -> tuple[int, int]:
    """Fidelity and accumulate format as the ops take them: nothing is masked where every bit is seen."""
    own = facts(node)
    fidelity, accumulate = MathFidelity[own.fidelity or "HiFi4"], DataFormat[own.accumulate or own.format]
    how = Precision(accumulate, fidelity, accumulate).summed
    formats = [_format_of(each) for each in (left, right)]
    if not accumulate.is_integer and all(
        name and replace(how, format=DataFormat[name]).fits for name in formats
    ):
        return WHOLE, accumulate.value
    return how.fidelity.value, accumulate.value


def _lower_convolution(node: fx.Node) -> None:
    given = dict(
        zip(("input", "weight", "bias", "stride", "padding", "dilation", "groups"), node.args, strict=False)
    )
    given.update(node.kwargs)

    def pair(key: str, default: int) -> list[int]:
        value = given.get(key, default)
        return [int(value)] * 2 if isinstance(value, int) else list(value) * (2 // len(value))  # type: ignore[arg-type]

    node.args = (
        *(given["input"], given["weight"], given.get("bias")),
        *(pair("stride", 1), pair("padding", 0), pair("dilation", 1)),
        *(False, [0, 0], given.get("groups", 1)),
        *_how(node, given["input"], given["weight"]),
    )
    node.kwargs = {}
    node.target = torch.ops.loom_numerics.convolution.default

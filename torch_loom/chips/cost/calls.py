"""What the cost model is asked about a call: of a command on the tape, or of an op of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from torch_loom.chips.cost.records import Op, Tensor
from torch_loom.ops import DEFAULT, family_of

__all__ = ["Operand", "described", "in_tf32", "of_call", "of_command"]

_OP_NAME = re.compile(r"\w+::\w+")

# A tensor of a command: address, sizes, strides, bytes of an element, whether it is written, dtype.
Operand = tuple[int, tuple[int, ...], tuple[int, ...], int, bool, str]


def described(tensor: torch.Tensor) -> Tensor:
    """Return what the cost model knows of a tensor, or of a fake."""
    sizes = tuple(int(size) for size in tensor.shape), tuple(int(step) for step in tensor.stride())
    return Tensor(str(tensor.dtype).removeprefix("torch."), *sizes)


def of_call(
    schema: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
    describe: Callable[[torch.Tensor], Tensor] = described,
) -> Op:
    """Return a call of an op with tensors, or with fakes of them."""
    names = (argument.name for argument in schema.arguments)
    inputs: list[Tensor] = []
    lists: list[int] = []
    attributes: dict[str, object] = {}
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        tensors = [describe(tensor) for tensor in _tensors(value)]
        inputs += tensors
        if not tensors:
            attributes[name] = value
        elif not isinstance(value, torch.Tensor):
            lists.append(len(tensors))
    outputs = tuple(describe(tensor) for tensor in _tensors(result))
    return Op(schema.name.removeprefix("aten::"), tuple(inputs), outputs, attributes, tuple(lists))


def of_command(
    name: str, inputs: Sequence[Operand], outputs: Sequence[Operand], attributes: Mapping[str, Any]
) -> Op:
    """Return a command on the tape, by the name of its op (``aten::add.Tensor``) and its operands."""
    base, outs, count = _of_name(name)
    # Tensors given as `out` are among the outputs; their values are not read.
    if outs is None:
        outs = next((i for i, operand in enumerate(reversed(inputs)) if not operand[4]), len(inputs))
    read = tuple([_tensor(operand) for operand in inputs[: len(inputs) - outs]])
    made = tuple([_tensor(operand) for operand in outputs])
    if not count:
        return Op(base, read, made, attributes)
    return Op(base, read, () if base.endswith("_") else made, attributes, (len(read) // count,) * count)


def in_tf32(op: Op) -> Op:
    """Return a product or a convolution of float32 as one of TF32."""
    inputs, outputs = (
        tuple(each._replace(dtype="tf32") if each.dtype == "float32" else each for each in tensors)
        for tensors in (op.inputs, op.outputs)
    )
    return op._replace(inputs=inputs, outputs=outputs)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _tensor(operand: Operand) -> Tensor:
    _, sizes, strides, item_bytes, _, dtype = operand
    return Tensor(dtype or f"bytes{item_bytes}", sizes, strides)


def _schemas(op: str) -> Sequence[Any]:
    """Return those of an op's overloads; none of a kernel that is no op, as compiled ones are."""
    return torch._C._jit_get_schemas_for_operator(op) if _OP_NAME.fullmatch(op) else ()


@lru_cache(maxsize=1024)
def _of_name(name: str) -> tuple[str, int | None, int]:
    """Return an op's name without overload, how many tensors it takes as ``out``, and how many lists."""
    op, _, overload = name.partition(".")
    base = op.rpartition("::")[2]
    if family_of(op) is not DEFAULT:
        base = op.removeprefix("aten::")  # the table has it with its library's name
    is_list = base.startswith(("_foreach_", "_fused_"))
    return base, _num_outs(op, overload), _num_lists(op, overload) if is_list else 0


def _num_outs(op: str, overload: str) -> int | None:
    """Return how many of an op's last operands are tensors given as ``out``; None: all that are written."""
    for schema in _schemas(op):
        if schema.overload_name == overload:
            outs = [str(argument.type) for argument in schema.arguments if argument.is_out]
            return len(outs) if all(each == "Tensor" for each in outs) else None
    return 0


def _num_lists(op: str, overload: str) -> int:
    """Return how many lists of tensors an op takes, those of moments that are rarely kept left out."""
    for schema in _schemas(op):
        if schema.overload_name == overload:
            lists = [item for item in schema.arguments if str(item.type) == "List[Tensor]"]
            return sum(item.name not in ("max_exp_avg_sqs", "state_steps") for item in lists)
    return 0

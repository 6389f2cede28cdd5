"""A kernel for launches in which its loops run once.

A kernel that sums a row says ``for begin in range(0, columns, BLOCK)``, and most launches have rows no longer
than a block. Without the loop, what it carries need not lie in memory between the sum and what is summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch_loom.kernels.ttir.model import Block, Function, Op, Region, Scalar, Tensor, Value


@dataclass(frozen=True)
class Bound:
    """A loop from ``begin`` by ``step`` runs once if ``begin < end <= begin + step``."""

    begin: int
    end: Value
    step: int


def run_once(function: Function) -> tuple[Function, tuple[Bound, ...]] | None:
    """Return the function without the loops that an argument ends, and when it is the same; None: keep them.

    Where loops carry no block of floats, nothing is gained; products of matrices take longer than the gain.
    """
    if len(function.body.blocks) != 1 or any(op.name == "tt.dot" for op in function.walk()):
        return None
    (block,) = function.body.blocks
    constants = {
        op.result: op.attributes["value"]
        for op in function.walk()
        if op.name == "arith.constant" and isinstance(op.result.type, Scalar)
    }
    ends = set(function.arguments)
    bounds = [
        _bound(op, constants) if op.name == "scf.for" and op.operands[1] in ends else None for op in block.ops
    ]
    carries = [
        any(_is_block_of_floats(result) for result in op.results)
        for op, bound in zip(block.ops, bounds, strict=True)
        if bound is not None
    ]
    if not any(carries):
        return None
    same: dict[Value, Value] = {}
    ops: list[Op] = []
    for op, bound in zip(block.ops, bounds, strict=True):
        op = _with_values(op, same)
        if bound is None:
            ops.append(op)
            continue
        body = op.regions[0].only
        same.update(zip(body.arguments, (op.operands[0], *op.operands[3:]), strict=True))
        *inner, end = (_with_values(each, same) for each in body.ops)
        ops += inner
        same.update(zip(op.results, end.operands, strict=True))
    body = replace(block, ops=tuple(ops))
    return replace(function, body=Region((body,))), tuple(dict.fromkeys(filter(None, bounds)))


def _bound(loop: Op, constants: Mapping[Value, Any]) -> Bound | None:
    begin, end, step = loop.operands[:3]
    if begin not in constants or step not in constants or loop.attributes.get("unsigned"):
        return None
    found = Bound(int(constants[begin]), end, int(constants[step]))
    return found if found.step > 0 else None


def _is_block_of_floats(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, Tensor) and isinstance(kind.element, Scalar) and kind.element.is_float


def _with_values(op: Op, same: Mapping[Value, Value]) -> Op:
    """Return the op with other values as operands, in its regions and attributes too."""

    def other(what: Any) -> Any:
        if isinstance(what, Value):
            return same.get(what, what)
        return type(what)(map(other, what)) if isinstance(what, tuple | list) else what

    def inside(region: Region) -> Iterator[Block]:
        for block in region.blocks:
            yield replace(block, ops=tuple(_with_values(each, same) for each in block.ops))

    return replace(
        op,
        operands=other(op.operands),
        attributes={name: other(each) for name, each in op.attributes.items()},
        regions=tuple(Region(tuple(inside(each))) for each in op.regions),
    )

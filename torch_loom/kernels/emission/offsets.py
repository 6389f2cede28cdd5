"""Where whole numbers that become offsets of addresses may wrap around: looked for under the sanitizer."""

from __future__ import annotations

from torch_loom.kernels.lowering.plan import LoweredFunction
from torch_loom.kernels.ttir.model import Op, Scalar, Value, element_of

# Whether a result did not fit into its type: C++, of the type and the operands.
WRAPS = {
    "arith.addi": "sum_wraps<{T}>({0}, {1})",
    "arith.subi": "difference_wraps<{T}>({0}, {1})",
    "arith.muli": "product_wraps<{T}>({0}, {1})",
    "arith.shli": "shift_wraps<{T}>({0}, {1})",
}
# What keeps a wrong number wrong. A rest or single bits are taken of hashes, which wrap around on purpose.
_KEEPS = {
    *WRAPS,
    *("tt.addptr", "arith.extsi", "arith.extui", "arith.index_cast", "arith.select", "arith.divsi"),
    *("arith.minsi", "arith.maxsi", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape"),
    "tt.unsplat",
}


def operands_kept(op: Op) -> tuple[Value, ...]:
    """Return the operands whose wrong values make an op's result wrong."""
    if op.name not in _KEEPS:
        return ()
    return op.operands[1:] if op.name == "arith.select" else op.operands


def can_wrap(op: Op) -> bool:
    """Whether an op computes a whole number of less than 64 bits that may not fit."""
    if op.name not in WRAPS:
        return False
    element = element_of(op.result.type)
    return isinstance(element, Scalar) and element.is_integer and 8 <= element.bits < 64


def offset_values(lowered: LoweredFunction) -> set[Value]:
    """Return the values that become offsets of addresses."""
    carried: dict[Value, tuple[Value, ...]] = {}
    waiting: list[Value] = []
    for op in lowered.function.walk():
        if op.name == "tt.addptr":
            waiting.append(op.operands[1])
        elif op.name == "scf.for":
            body = op.regions[0].only
            ends = body.ops[-1].operands
            rows = zip(body.arguments[1:], op.results, op.operands[3:], ends, strict=True)
            for argument, result, begin, end in rows:
                carried[argument] = carried[result] = (begin, end)
    found: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found.add(value)
        waiting.extend(carried.get(value, ()))
        maker = lowered.makers.get(value)
        if maker is not None:
            waiting.extend(operands_kept(maker))
    return found

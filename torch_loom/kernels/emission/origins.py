"""Which argument of a kernel an address comes from."""

from __future__ import annotations

from torch_loom.kernels.lowering.plan import LoweredFunction
from torch_loom.kernels.ttir.model import Op, Value

_THROUGH = {
    *("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast"),
    "tt.unsplat",
}


class Origins:
    """Follows addresses through a function."""

    def __init__(self, lowered: LoweredFunction) -> None:
        self._makers = lowered.makers
        self._arguments = set(lowered.function.arguments)
        self._known: dict[Value, Value | None] = {}
        # What a value of a loop begins with, and what a turn makes of it.
        self._carried: dict[Value, tuple[Value, ...]] = {}
        for op in lowered.function.walk():
            if op.name == "scf.for":
                body = op.regions[0].only
                begins, ends = op.operands[3:], body.ops[-1].operands
                for argument, result, begin, end in zip(
                    body.arguments[1:], op.results, begins, ends, strict=True
                ):
                    self._carried[argument] = self._carried[result] = (begin, end)
            elif op.name == "scf.if":
                ends_of = [region.only.ops[-1].operands for region in op.regions]
                for number, result in enumerate(op.results):
                    self._carried[result] = tuple(end[number] for end in ends_of)

    def of(self, address: Value) -> Value | None:
        """Return the argument that an address comes from; None where it may be several, or none."""
        if address not in self._known:
            found = self._find(address, set())
            self._known[address] = next(iter(found)) if len(found) == 1 else None
        return self._known[address]

    def _find(self, address: Value, seen: set[Value]) -> set[Value | None]:
        if address in seen:
            return set()
        seen.add(address)
        if address in self._arguments:
            return {address}
        if address in self._carried:
            return set().union(*(self._find(each, seen) for each in self._carried[address]))
        maker: Op | None = self._makers.get(address)
        if maker is None:
            return {None}
        if maker.name in _THROUGH:
            return self._find(maker.operands[0], seen)
        if maker.name == "arith.select":
            return self._find(maker.operands[1], seen) | self._find(maker.operands[2], seen)
        return {None}

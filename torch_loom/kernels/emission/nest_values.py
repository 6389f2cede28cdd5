"""The elements that a loop over a block computes, and the names that C++ has for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.emission.linear import (
    Box,
    Index,
    Linear,
    Linears,
    Numbers,
    flat_index,
    source_index,
)
from torch_loom.kernels.emission.offsets import WRAPS, can_wrap, operands_kept
from torch_loom.kernels.emission.ordered import quoted
from torch_loom.kernels.emission.types import literal
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.axes import merged_axes
from torch_loom.kernels.lowering.plan import Nest
from torch_loom.kernels.ttir.model import Dense, Op, Tensor, Value

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

# Which elements of the innermost loop a body is for; EACH: all, accesses by rows checked each.
ALL, ACTIVE, IDLE, TESTED, EACH = "all", "active", "idle", "tested", "each"


class NestValues:
    """What is known of a loop, and C++ for elements of blocks in it.

    Args:
        function: where it stands.
        nest: what it computes.
        is_checked: check each element, instead of the ends.
    """

    def __init__(self, function: FunctionText, nest: Nest, *, is_checked: bool = False) -> None:
        self.function = function
        self.nest = nest
        self.is_checked = is_checked
        groups = merged_axes(nest, function.lowered)
        # The axis that has a loop's index: of several that are one loop, the last.
        self.loops = [group[-1] for group in groups]
        self.sizes = [math.prod(nest.shape[axis] for axis in group) for group in groups]
        self.depth = len(self.loops)
        self.names = [function.name("i") for _ in self.loops]
        self.head: list[str] = []
        self.before: list[list[str]] = [[] for _ in range(self.depth + 1)]
        self.after: list[list[str]] = [[] for _ in range(self.depth + 1)]
        self.bodies: dict[str, list[str]] = {}
        self.mode = ALL
        self.known: dict[tuple[Value, tuple[str, ...], str], tuple[str, int]] = {}
        self.numbers = Numbers(self.head, function.name)
        self.linears = Linears(self.numbers, self.sizes, self._maker, self._number)
        zero = Index("0", 0, Linear(0))
        at = [zero] * len(nest.shape)
        for loop, number in enumerate(self.loops):
            at[number] = Index(self.names[loop], loop + 1, Linear(0, {loop: 1}))
        self.at = tuple(at)
        self.mine = {result for op in nest.ops for result in op.results if op.name != "tt.reduce"}
        # Masks that are exactly where a box is.
        self.masks: dict[Value, Box] = {}

    def _maker(self, value: Value) -> Op | None:
        return self.function.lowered.makers.get(value) if value in self.function.lowered.inline else None

    def _number(self, value: Value, at: tuple[Index, ...]) -> str | None:
        if kinds.is_number(value.type):
            return self.numbers.named(self.function.number(value))
        if value in self.mine or any(each.depth for each in at) or not self.function.has_buffer(value):
            return None
        assert isinstance(value.type, Tensor)
        return self.numbers.named(f"{self.function.buffer(value)}[{flat_index(at, value.type.shape)}]")

    def value(self, value: Value, at: tuple[Index, ...]) -> tuple[str, int]:
        """Return C++ for an element, and how deep in the loops it is known."""
        if kinds.is_number(value.type):
            return self.function.number(value), 0
        if value in self.masks and at == self.at and self.mode in (ACTIVE, IDLE):
            # With several masks, the bodies are for where all are true, and for all the rest, tested.
            return ("true" if self.mode == ACTIVE else "false"), self.depth
        place = tuple(each.text for each in at)
        for mode in ("", self.mode):
            if (value, place, mode) in self.known:
                return self.known[value, place, mode]
        found, depth = self._compute(value, at)
        self.known[value, place, self.mode if depth == self.depth else ""] = (found, depth)
        return found, depth

    def _compute(self, value: Value, at: tuple[Index, ...]) -> tuple[str, int]:
        maker = self.function.lowered.makers.get(value)
        is_here = value in self.function.lowered.inline or (value in self.mine and at == self.at)
        assert isinstance(value.type, Tensor)
        if maker is None or not is_here:
            depth = max((each.depth for each in at), default=0)
            element = f"{self.function.buffer(value)}[{flat_index(at, value.type.shape)}]"
            return self._line(self.function.element_type(value), element, depth), depth
        if maker.name == "arith.constant":
            constant = maker.attributes["value"]
            if isinstance(constant, Dense) and not constant.is_splat:
                depth = max((each.depth for each in at), default=0)
                return f"{self.function.table(value, constant)}[{flat_index(at, value.type.shape)}]", depth
            return literal(constant, value.type.element), 0
        if maker.name == "tt.make_range":
            start = maker.attributes["start"]
            return f"int32_t({at[0].text}{f' + {start}' if start else ''})", at[0].depth
        if maker.name == "ub.poison":
            return f"{self.function.element_type(value)}()", 0
        if maker.name in ("tt.join", "tt.cat", "tt.split"):
            return self._picked(maker, value, at)
        if maker.name in kinds.VIEWS:
            inner, _ = source_index(maker, at, None)
            source = maker.operands[0]
            if (
                maker.name == "tt.reshape"
                and source not in self.function.lowered.inline
                and self.function.has_buffer(source)
            ):
                # Both lie in memory in the same order.
                depth = max((each.depth for each in at), default=0)
                element = f"{self.function.buffer(source)}[{flat_index(at, value.type.shape)}]"
                return self._line(self.function.element_type(value), element, depth), depth
            return self.value(source, inner)
        if maker.name == "tt.reduce":
            return self._of_pair(maker, at)
        if maker.name == "tt.gather":
            return self._gathered(maker, at)
        if maker.name in kinds.LOADS:
            return self._load(maker), self.depth
        arguments = [self.value(operand, at) for operand in maker.operands]
        depth = max((each for _, each in arguments), default=0)
        return self.computed(maker, value, [each for each, _ in arguments], depth), depth

    def computed(self, op: Op, value: Value, arguments: list[str], depth: int) -> str:
        kind = self.function.element_type(value)
        if op.name == "tt.map_elementwise":
            return self._mapped(op, value, arguments, depth)
        if op.name == "tt.elementwise_inline_asm":
            lines, results = self.function.assembly(op, arguments)
            self._lines(depth).extend(lines)
            return results[op.results.index(value)]
        return self._line(kind, elements.expression(op, arguments), depth)

    def _mapped(self, op: Op, value: Value, arguments: list[str], depth: int) -> str:
        lines, results = self.function.combined(op.regions[0], arguments)
        self._lines(depth).extend(lines)
        return results[op.results.index(value)]

    def _picked(self, op: Op, value: Value, at: tuple[Index, ...]) -> tuple[str, int]:
        assert isinstance(value.type, Tensor)
        if op.name == "tt.split":
            half = op.results.index(value)
            return self.value(op.operands[0], (*at, Index(str(half), 0, Linear(half))))
        depth = max((each.depth for each in at), default=0)
        if op.name == "tt.join":
            (a, _), (b, _) = (self.value(operand, at[:-1]) for operand in op.operands)
            return self._line(
                self.function.element_type(value), f"{at[-1].text} == 0 ? {a} : {b}", depth
            ), depth
        first = op.operands[0].type
        assert isinstance(first, Tensor)
        size = first.shape[0]
        each = Index(f"({at[0].text} % {size})", at[0].depth, None)
        (a, _), (b, _) = (self.value(operand, (each, *at[1:])) for operand in op.operands)
        kind = self.function.element_type(value)
        return self._line(kind, f"{at[0].text} < {size} ? {a} : {b}", depth), depth

    def _of_pair(self, op: Op, at: tuple[Index, ...]) -> tuple[str, int]:
        axis, combination = op.attributes["axis"], kinds.simple_combination(op)
        assert combination is not None
        pair = [
            self.value(op.operands[0], (*at[:axis], Index(str(half), 0, Linear(half)), *at[axis:]))
            for half in range(2)
        ]
        depth = max(each for _, each in pair)
        kind = self.function.element_type(op.result)
        both = elements.combination(combination, kind, *(text for text, _ in pair))
        return self._line(kind, f"{kind}({both})", depth), depth

    def _gathered(self, op: Op, at: tuple[Index, ...]) -> tuple[str, int]:
        source, axis = op.operands[0], op.attributes["axis"]
        index, _ = self.value(op.operands[1], at)
        assert isinstance(source.type, Tensor)
        size = source.type.shape[axis]
        place = f"index_in(program, {quoted(str(op.place))}, {index}, {size})"
        kept = self._line("int64_t", place, self.depth)
        places = (*at[:axis], Index(kept, self.depth, None), *at[axis + 1 :])
        element = f"{self.function.buffer(source)}[{flat_index(places, source.type.shape)}]"
        return self._line(self.function.element_type(op.result), element, self.depth), self.depth

    def _lines(self, depth: int) -> list[str]:
        return self.bodies[self.mode] if depth == self.depth else self.before[depth]

    def _line(self, kind: str, expression: str, depth: int) -> str:
        name = self.function.name("t")
        self._lines(depth).append(f"const {kind} {name} = {expression};")
        return name

    def _has_wrapped(self, op: Op) -> str:
        """Return C++ of whether the address of this element has wrapped around; "" if that is not checked."""
        if not self.function.kernel.is_watched:
            return ""
        return " | ".join(dict.fromkeys(self._wraps(op.operands[0], self.at)))

    def _wraps(self, value: Value, at: tuple[Index, ...]) -> list[str]:
        maker = self._maker(value)
        if maker is None or kinds.is_number(value.type):
            return []
        found: list[str] = []
        for operand in operands_kept(maker):
            place = source_index(maker, at, None)[0] if maker.name in kinds.VIEWS else at
            found += self._wraps(operand, place)
        if can_wrap(maker):
            arguments = [self.value(operand, at) for operand in maker.operands]
            kind = self.function.element_type(maker.result)
            wraps = WRAPS[maker.name].format(*(text for text, _ in arguments), T=kind)
            found.append(self._line("bool", wraps, max(depth for _, depth in arguments)))
        return found

    def _load(self, op: Op) -> str:
        raise NotImplementedError  # NestMemory's

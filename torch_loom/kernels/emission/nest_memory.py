"""Loads and stores of a loop over a block: where they are checked, and what they become.

An address that is a sum over all indices is checked at its ends in front of the loop, one that is a sum in
each row in front of the row; of halves whole rows are converted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_loom.kernels.emission.linear import Box, Index, Linear, Number, text
from torch_loom.kernels.emission.nest_values import ACTIVE, ALL, EACH, IDLE, TESTED, NestValues
from torch_loom.kernels.emission.rows import RowLinears
from torch_loom.kernels.emission.types import byte_size
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.plan import Nest
from torch_loom.kernels.ttir.model import Op, Pointer, Type, Value, element_of

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

# How many elements of the innermost loop are converted at once.
PART = 256


@dataclass
class _Access:
    """A load or a store whose address is a sum."""

    op: Op
    linear: Linear
    box: Box | None
    has_mask: bool  # a mask that is no box
    low: Number = 0
    high: Number = 0
    row: str = ""
    # Of a sum over the innermost index alone: what has to be true in front of each row.
    conditions: tuple[str, ...] | None = None


class NestMemory(NestValues):
    """The loads and stores of a loop."""

    def __init__(self, function: FunctionText, nest: Nest, *, is_checked: bool = False) -> None:
        super().__init__(function, nest, is_checked=is_checked)
        self.accesses: dict[Op, _Access] = {}
        self.row_linears = RowLinears(
            self.before[-2] if self.depth else [],
            function.name,
            self.sizes,
            self._maker,
            lambda value, at: self.value(value, at)[0],
        )
        self.rows: dict[Box, tuple[str, str]] = {}
        # What is converted between halves and floats row by row: C++ in front of and behind a part of the
        # innermost loop, which begins at `part` and has `count` elements.
        self.part, self.count = function.name("o"), function.name("z")
        self.rows_before: list[str] = []
        self.rows_after: list[str] = []

    def _find_access(self, op: Op) -> None:
        pointer = op.operands[0]
        linear = self.linears.exact(pointer, self.at)
        conditions = None
        row = ""
        if linear is None or isinstance(linear.base, int):
            found = self.row_linears.row(pointer, self.at) if self.depth > 1 else None
            if found is None:
                return
            linear, conditions = found
            row = self.function.name("p")
            self.before[-2].append(f"const char* const {row} = (const char*)({text(linear.base)});")
        mask = _mask(op)
        box = None if mask is None else self.linears.box(mask, self.at)
        if box == Box((), ()):
            mask = box = None
        if mask is not None and box is not None:
            self.masks[mask] = box
        has_mask = mask is not None and box is None
        access = _Access(op, linear, box, has_mask, row=row, conditions=conditions)
        if access.has_mask and op.name in kinds.STORES and self.is_checked:
            return
        self.accesses[op] = access

    def _conditions(self) -> Iterable[str]:
        for op, access in self.accesses.items():
            if access.conditions is not None:
                continue
            access.low, high = self.linears.ends(access.linear, access.box)
            access.high = self.numbers.add(high, byte_size(element_of(_pointee(op))))
            holds = f"holds(program, {self.function.site(op)}, {text(access.low)}, {text(access.high)})"
            empty = []
            if access.box is not None:
                lows = dict(access.box.lows)
                for loop, bound in access.box.highs:
                    empty.append(f"{text(bound)} <= {text(lows.get(loop, 0))}")
                for loop, bound in access.box.lows:
                    if loop not in dict(access.box.highs):
                        empty.append(f"{self.sizes[loop]} <= {text(bound)}")
            yield f"({' || '.join([*empty, holds])})"
        yield from self.linears.conditions

    def _overlaps(self) -> list[str] | None:
        """Return what has to be true so that no store changes what a load reads; None if nothing is known."""
        loads = [op for op in self.nest.ops if op.name in kinds.LOADS]
        stores = [op for op in self.nest.ops if op.name in kinds.STORES]
        found = []
        for store in stores:
            for load in loads:
                read, write = self.accesses.get(load), self.accesses.get(store)
                same = ""
                is_sum = self._is_sum(read) and self._is_sum(write)
                if is_sum and read is not None and write is not None:
                    if read.linear == write.linear:
                        continue
                    if dict(read.linear.steps) == dict(write.linear.steps):
                        same = f" || {text(read.linear.base)} == {text(write.linear.base)}"
                reach, target = self._extent(load), self._extent(store)
                if reach is None or target is None or reach == target:
                    return None
                (low, high), (first, last) = reach, target
                found.append(f"({high} <= {first} || {last} <= {low}{same})")
        return list(dict.fromkeys(found))

    def _is_sum(self, access: _Access | None) -> bool:
        return access is not None and access.conditions is None

    def _extent(self, op: Op) -> tuple[str, str] | None:
        """Return between which addresses an access lies; None if nothing is known."""
        access = self.accesses.get(op)
        if access is not None and access.conditions is None:
            return text(access.low), text(access.high)
        number = self.function.kernel.argument(self.function, op)
        memory = f"program.memories[{number}]"
        return None if number < 0 else (f"{memory}.begin", f"{memory}.end")

    def _row_check(self) -> str:
        """Write down whether all accesses by rows are in their memory; return the variable, or ""."""
        tests: list[str] = []
        linears = self.row_linears
        for op, access in self.accesses.items():
            if access.conditions is None:
                continue
            begin, end = self.rows[access.box] if access.box is not None else (0, self.sizes[-1])
            bytes_ = byte_size(element_of(_pointee(op)))
            low, high = linears.ends_of_row(access.linear, begin, end, bytes_)
            site = self.function.site(op)
            test = f"holds(program, {site}, {text(low)}, {text(high)})"
            tests += access.conditions
            tests.append(test if access.box is None else f"({end} <= {begin} || {test})")
        if not tests:
            return ""
        name = self.function.name("w")
        tests = [*dict.fromkeys(tests)]
        self.before[-2].append(f"const bool {name} = {' && '.join(tests)};")
        return name

    def _boxes(self) -> list[Box]:
        found = [access.box for access in self.accesses.values() if access.box is not None]
        return list(dict.fromkeys(found))

    def _needs_rest(self, boxes: list[Box]) -> bool:
        """Whether elements outside of the boxes are computed: all but masked stores need them."""
        if len(boxes) > 1 or self.nest.kept:
            return True
        return any(
            op.name == "tt.reduce"
            or op.name in kinds.ORDERED
            or (op.name in kinds.STORES and (op not in self.accesses or self.accesses[op].box is None))
            for op in self.nest.ops
        )

    def _rows(self, boxes: list[Box]) -> dict[Box, tuple[str, str]]:
        """Write down between which elements of the innermost loop each mask is true."""
        rows = self.rows
        last = self.depth - 1
        for box in boxes:
            lows, highs = dict(box.lows), dict(box.highs)
            tests = [f"{self.names[loop]} >= {text(low)}" for loop, low in lows.items() if loop != last]
            tests += [f"{self.names[loop]} < {text(high)}" for loop, high in highs.items() if loop != last]
            low, high = text(lows.get(last, 0)), text(highs.get(last, self.sizes[last]))
            begin, end = self.function.name("b"), self.function.name("e")
            lines = self.before[last]
            if tests:
                is_in = " && ".join(tests)
                lines.append(f"const int64_t {begin} = ({is_in}) ? {low} : 0;")
                lines.append(f"const int64_t {end} = ({is_in}) ? {high} : 0;")
            else:
                lines.append(f"const int64_t {begin} = {low}, {end} = {high};")
            rows[box] = (begin, end)
        return rows

    def _row(self, access: _Access) -> tuple[str, Number]:
        """Return the address of a row of the innermost loop, and the step from element to element."""
        last = self.depth - 1
        if not access.row:
            parts = [text(access.linear.base)]
            for loop, step in access.linear.steps.items():
                if loop != last:
                    parts.append(f"{text(step)} * {self.names[loop]}")
            access.row = self.function.name("p")
            self.before[last].append(f"const char* const {access.row} = (const char*)({' + '.join(parts)});")
        return access.row, access.linear.steps.get(last, 0)

    def _element(self, access: _Access, kind: str) -> str:
        row, step = self._row(access)
        if step == 0:
            return f"(*(const {kind}*){row})"
        name = self.names[-1]
        size = byte_size(element_of(_pointee(access.op)))
        if isinstance(step, int) and step % size == 0:
            place = name if step == size else f"{name} * {step // size}"
            return f"((const {kind}*){row})[{place}]"
        return f"(*(const {kind}*)({row} + {text(step)} * {name}))"

    # Halves are converted by rows: a compiler makes no such instructions of a loop.
    def _by_rows(self, access: _Access | None) -> bool:
        if access is None or self.mode not in (ALL, ACTIVE) or not self.depth:
            return False
        return access.linear.steps.get(self.depth - 1, 0) == 2 and self.sizes[-1] >= 8

    def _row_array(self) -> str:
        name = self.function.name("h")
        self.before[self.depth - 1].append(f"alignas(64) float {name}[{PART}];")
        return name

    def _part_index(self) -> tuple[Index, ...]:
        zero = Index("0", 0, Linear(0))
        rest = len(self.at) - self.loops[-1] - 1
        return (Index(self.part, self.depth, None), *[zero] * rest)

    def _loaded_row(self, op: Op, access: _Access, mask: Value | None, other: str) -> str | None:
        """Return an element of a row of halves as a float, where floats are all that is made of it."""
        if self.function.element_type(op.result) != "f16" or self.mode not in (ALL, ACTIVE) or not self.depth:
            return None
        users = self.function.lowered.users.get(op.result, [])
        if op.result in self.nest.kept or any(user.name != "arith.extf" for user in users):
            return None
        if not self._by_rows(access):
            is_far = access.linear.steps.get(self.depth - 1, 0) not in (0, 2) and not access.has_mask
            return (
                self._line("float", f"widen_one({self._element(access, 'f16')})", self.depth)
                if is_far
                else None
            )
        row, _ = self._row(access)
        array = self._row_array()
        self.rows_before.append(f"widen_row({array}, (const f16*){row} + {self.part}, {self.count});")
        element = f"{array}[{self.names[-1]} - {self.part}]"
        if access.has_mask:
            assert mask is not None
            element = f"{self.value(mask, self.at)[0]} ? {element} : float({other})"
        return self._line("float", element, self.depth)

    def _stored_row(self, op: Op, access: _Access | None) -> bool:
        """Write an element to a row of floats, which are stored as halves; False if it is no such store."""
        if access is None or access.has_mask or not self._by_rows(access):
            return False
        source = self._narrowed(op.operands[1])
        if source is None:
            return False
        row, _ = self._row(access)
        array = self._row_array()
        element, _ = self.value(source, self.at)
        self.bodies[self.mode].append(f"{array}[{self.names[-1]} - {self.part}] = {element};")
        self.rows_after.append(f"narrow_row((f16*){row} + {self.part}, {array}, {self.count});")
        return True

    def _narrowed(self, value: Value) -> Value | None:
        """Return the float32 that a float16 of this loop is rounded from, to nearest."""
        maker = self.function.lowered.makers.get(value)
        if maker is None or maker.name != "arith.truncf" or value not in self.mine:
            return None
        source = maker.operands[0]
        kinds_of = [self.function.element_type(each) for each in (value, source)]
        if kinds_of != ["f16", "float"] or "toward_zero" in maker.attributes.get("words", ()):
            return None
        return source

    def _rounded(self, value: Value) -> Value | None:
        """Return the float32 that a kept one is made of by rounding to float16."""
        maker = self.function.lowered.makers.get(value)
        if maker is None or maker.name != "arith.extf" or self.mode not in (ALL, ACTIVE) or self.is_checked:
            return None
        if self.function.element_type(value) != "float" or not self.depth or self.sizes[-1] < 8:
            return None
        return self._narrowed(maker.operands[0])

    def _known_access(self, op: Op) -> _Access | None:
        """Return what is known of an access in this body; None if the element is to be checked."""
        access = self.accesses.get(op)
        return None if self.mode == EACH and not self._is_sum(access) else access

    def _load(self, op: Op) -> str:
        kind = self.function.element_type(op.result)
        mask = _mask(op)
        other = f"{kind}()"
        if mask is not None and len(op.operands) > 2:
            other, _ = self.value(op.operands[2], self.at)
        access = self._known_access(op)
        if access is None:
            address, _ = self.value(op.operands[0], self.at)
            read = self.function.read(op, address, self._has_wrapped(op))
            if mask is None:
                return self._line(kind, read, self.depth)
            is_active, _ = self.value(mask, self.at)
            return self._line(kind, f"{is_active} ? {read} : {other}", self.depth)
        loaded = self._loaded_row(op, access, mask, other)
        if loaded is not None:
            return loaded
        element = self._element(access, kind)
        if access.has_mask:
            # All of it is the argument's memory, so that it is read without a branch.
            found = self._line(kind, element, self.depth)
            assert mask is not None
            is_active, _ = self.value(mask, self.at)
            return self._line(kind, f"{is_active} ? {found} : {other}", self.depth)
        if access.box is None or self.mode == ACTIVE:
            return self._line(kind, element, self.depth)
        if self.mode == IDLE:
            return self._line(kind, other, self.depth)
        return self._line(kind, f"{self._is_in(access.box)} ? {element} : {other}", self.depth)

    def _is_in(self, box: Box) -> str:
        begin, end = self.rows[box]
        return f"({self.names[-1]} >= {begin} && {self.names[-1]} < {end})"

    def _store(self, op: Op) -> None:
        kind = self.function.element_type(op.operands[1])
        access = self._known_access(op)
        mask = _mask(op)
        if access is not None and access.box is not None and self.mode == IDLE:
            return
        if self._stored_row(op, access):
            return
        lines = self.bodies[self.mode]
        element, _ = self.value(op.operands[1], self.at)
        if access is None:
            address, _ = self.value(op.operands[0], self.at)
            is_active = "" if mask is None else f"if ({self.value(mask, self.at)[0]}) "
            more = filter(None, [self._has_wrapped(op)])
            given = ", ".join(["program", self.function.site(op), address, element, *more])
            lines.append(f"{is_active}write_checked<{kind}>({given});")
            return
        place = self._element(access, kind).replace(f"const {kind}*", f"{kind}*")
        condition = ""
        if access.has_mask:
            assert mask is not None
            condition = f"if ({self.value(mask, self.at)[0]}) "
        elif access.box is not None and self.mode in (TESTED, EACH):
            condition = f"if ({self._is_in(access.box)}) "
        lines.append(condition + assigned(place, element, kind))


def assigned(place: str, element: str, kind: str) -> str:
    """Return the statement that writes an element to memory."""
    # A compiler vectorises stores of numbers, and not of structures.
    if kind in ("f16", "bf16") or kind.startswith("f8"):
        return f"{place}.bits = {element}.bits;"
    return f"{place} = {element};"


def _mask(op: Op) -> Value | None:
    position = 1 if op.name in kinds.LOADS else 2
    return op.operands[position] if len(op.operands) > position else None


def _pointee(op: Op) -> Type:
    pointer = element_of(op.operands[0].type)
    assert isinstance(pointer, Pointer)
    return pointer.pointee

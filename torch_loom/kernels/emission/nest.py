"""C++ of one loop over a block.

Where addresses are sums over the indices, the ends of each are checked in front of the loop, which then reads
neighbours without a branch. If a check fails, the same loop runs with every element checked: it finds which
one is wrong, or that none is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.emission.linear import (
    Box,
    Index,
    Linear,
    Linears,
    Number,
    Numbers,
    flat_index,
    source_index,
    text,
)
from torch_loom.kernels.emission.offsets import WRAPS, can_wrap, operands_kept
from torch_loom.kernels.emission.ordered import ordered, quoted
from torch_loom.kernels.emission.rows import RowLinears
from torch_loom.kernels.emission.types import byte_size, literal
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.plan import Nest
from torch_loom.kernels.ttir.model import Dense, Op, Pointer, Tensor, Type, Value, element_of

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

# How many elements of the innermost loop are converted at once.
_PART = 256
# How many sums of floats are added up beside one another: an addition takes several cycles.
_LANES = 64
# Which elements of the innermost loop a body is for; _EACH: all, accesses by rows checked each.
_ALL, _ACTIVE, _IDLE, _TESTED, _EACH = "all", "active", "idle", "tested", "each"


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


@dataclass
class _Body:
    """Lines of C++: at each depth in front of the next loop, and behind it."""

    before: list[list[str]] = field(default_factory=list)
    after: list[list[str]] = field(default_factory=list)


class NestText:
    """C++ of a loop.

    Args:
        function: where it stands.
        nest: what it computes.
        is_checked: check each element, instead of the ends.
    """

    def __init__(self, function: FunctionText, nest: Nest, *, is_checked: bool = False) -> None:
        self.function = function
        self.nest = nest
        self.is_checked = is_checked
        self.loops = [number for number, size in enumerate(nest.shape) if size != 1]
        self.sizes = [nest.shape[number] for number in self.loops]
        self.depth = len(self.loops)
        self.names = [function.name("i") for _ in self.loops]
        self.head: list[str] = []
        self.before: list[list[str]] = [[] for _ in range(self.depth + 1)]
        self.after: list[list[str]] = [[] for _ in range(self.depth + 1)]
        self.bodies: dict[str, list[str]] = {}
        self.mode = _ALL
        self.known: dict[tuple[Value, tuple[str, ...], str], tuple[str, int]] = {}
        self.numbers = Numbers(self.head, function.name)
        self.linears = Linears(self.numbers, self.sizes, self._maker, self._number)
        zero = Index("0", 0, Linear(0))
        at = [zero] * len(nest.shape)
        for loop, number in enumerate(self.loops):
            at[number] = Index(self.names[loop], loop + 1, Linear(0, {loop: 1}))
        self.at = tuple(at)
        self.mine = {result for op in nest.ops for result in op.results if op.name != "tt.reduce"}
        self.accesses: dict[Op, _Access] = {}
        self.row_linears = RowLinears(
            self.before[-2] if self.depth else [],
            function.name,
            self.sizes,
            self._maker,
            lambda value, at: self.value(value, at)[0],
        )
        self.reductions: list[tuple[str, str]] = []
        self.rows: dict[Box, tuple[str, str]] = {}
        self.totals: dict[Op, str] = {}
        # Masks that are exactly where a box is.
        self.masks: dict[Value, Box] = {}
        # Where the elements begin that have a sum each; "" where all have one.
        self.chunk = self._sums_side_by_side()
        self._reduced: set[Op] = set()
        # What is converted between halves and floats row by row: C++ in front of and behind a part of the
        # innermost loop, which begins at `part` and has `count` elements.
        self.part, self.count = function.name("o"), function.name("z")
        self.rows_before: list[str] = []
        self.rows_after: list[str] = []

    # --------------------------------------------------------------------- text

    def lines(self) -> list[str]:
        """Return the lines of C++."""
        memory = [op for op in self.nest.ops if op.name in (*kinds.LOADS, *kinds.STORES)]
        if not self.is_checked and self.depth:
            for op in memory:
                self._find_access(op)
        writes = any(op.name in kinds.STORES for op in memory)
        reads = any(op.name in kinds.LOADS for op in memory)
        self._count_checks(memory)
        conditions = [*self._conditions()]
        is_mixed = bool(writes and reads and self.depth)
        if is_mixed and self.is_checked:
            return self._apart()
        if is_mixed:
            apart = self._overlaps()
            if apart is None:
                return self._apart()
            conditions += apart
        fast = self._text()
        if not conditions:
            return ["{", *self.head, *fast, "}"]
        is_sum = all(op in self.accesses and self.accesses[op].conditions is None for op in memory)
        if is_mixed and not is_sum:
            # Where they may overlap, loads by rows are checked by rows still.
            slow = NestText(self.function, self.nest)._apart()
        else:
            slow = NestText(self.function, self.nest, is_checked=True).lines()
        return [
            "{",
            *self.head,
            f"if (__builtin_expect_with_probability({' && '.join(conditions)}, 1, 1.0)) {{",
            *fast,
            "} else",
            *slow,
            "}",
        ]

    def _count_checks(self, memory: list[Op]) -> None:
        if self.is_checked and not self.function.kernel.is_watched:
            return  # the loop beside one that was counted
        for op in memory:
            access = self.accesses.get(op)
            kind = "each" if access is None else "ends" if access.conditions is None else "rows"
            self.function.kernel.checks[kind] += 1

    def filled(self, value: Value, place: str) -> list[str]:
        """Return the lines that write a computed block to a place in memory."""
        assert isinstance(value.type, Tensor)
        self.bodies[_ALL] = []
        element, _ = self.value(value, self.at)
        target = f"{place}[{flat_index(self.at, value.type.shape)}]"
        self.bodies[_ALL].append(assigned(target, element, self.function.element_type(value)))
        inner = self.bodies[_ALL]
        for loop in reversed(range(self.depth)):
            name, size = self.names[loop], self.sizes[loop]
            inner = [
                *self.before[loop],
                f"for (int64_t {name} = 0; {name} < {size}; ++{name}) {{",
                *inner,
                "}",
            ]
        return ["{", *self.head, *(self.before[0] if not self.depth else []), *inner, "}"]

    def _apart(self) -> list[str]:
        """All loads in front of all stores, as the block of the program has it."""
        loads = [op for op in self.nest.ops if op.name in kinds.LOADS]
        # Arithmetic is computed again where it is used: loads may need some for their masks and addresses.
        sinks = (*kinds.STORES, *kinds.ORDERED, "tt.reduce")
        until = [op for op in self.nest.ops if op.name not in sinks]
        others = [op for op in self.nest.ops if op.name not in kinds.LOADS]
        kept = {result for op in loads for result in op.results}
        for value in kept:
            self.function.buffer(value)
        first = Nest(self.nest.shape, until, kept)
        second = Nest(self.nest.shape, others, self.nest.kept - kept)
        return [
            "{",
            *NestText(self.function, first, is_checked=self.is_checked).lines(),
            *NestText(self.function, second, is_checked=self.is_checked).lines(),
            "}",
        ]

    def _text(self) -> list[str]:
        boxes = self._boxes()
        modes = [_ALL] if not boxes else [_ACTIVE]
        if boxes and self._needs_rest(boxes):
            modes.append(_IDLE if len(boxes) == 1 else _TESTED)
        rows = self._rows(boxes)
        is_fine = self._row_check()
        if is_fine:
            modes.append(_EACH)
        for mode in modes:
            self.mode = mode
            self.bodies[mode] = []
            for op in self.nest.ops:
                self._sink(op)
        if not self.depth:
            return [*self.before[0], *self.bodies[_ALL], *self.after[0]]
        inner, each = self._inner(boxes, rows)
        if is_fine:
            head = f"if (__builtin_expect({is_fine}, 1)) {{"
            inner = [head, *inner, "} else {", *each, "}"]
        for loop in reversed(range(self.depth)):
            if loop < self.depth - 1:
                name, size = self.names[loop], self.sizes[loop]
                inner = [f"for (int64_t {name} = 0; {name} < {size}; ++{name}) {{", *inner, "}"]
            inner = [*self.before[loop], *inner, *self.after[loop]]
        return inner

    def _sums_side_by_side(self) -> str:
        if not self.depth or self.sizes[-1] < 4 * _LANES or self.sizes[-1] % _LANES:
            return ""
        for op in self.nest.ops:
            is_inner = op.name == "tt.reduce" and op.attributes["axis"] == self.loops[-1]
            if is_inner and self._total_type(op) in ("float", "double"):
                return self.function.name("c")
        return ""

    def _inner(self, boxes: list[Box], rows: dict[Box, tuple[str, str]]) -> tuple[list[str], list[str]]:
        """Return the innermost loop, and the same for rows whose elements are checked one by one."""
        name, size = self.names[-1], self.sizes[-1]
        pragma = "#pragma GCC ivdep"
        if self.reductions:
            clauses = " ".join(dict.fromkeys(f"reduction({sign}:{one})" for sign, one in self.reductions))
            pragma = f"#pragma omp simd {clauses}"

        def run(begin: str, end: str, mode: str) -> list[str]:
            head = f"for (int64_t {name} = {begin}; {name} < {end}; ++{name}) {{"
            return [pragma, head, *self.bodies[mode], "}"]

        def chunks(begin: str, end: str, mode: str) -> list[str]:
            chunk = self.chunk
            if not chunk:
                return run(begin, end, mode)
            if mode not in (_ALL, _ACTIVE):
                head = f"for (int64_t {chunk} = {begin}; {chunk} < {end}; {chunk} += {_LANES}) {{"
                return [head, *run(chunk, f"least({chunk} + {_LANES}, {end})", mode), "}"]
            head = f"for (; {chunk} + {_LANES} <= {end}; {chunk} += {_LANES}) {{"
            lines = ["{", f"int64_t {chunk} = {begin};", head, *run(chunk, f"{chunk} + {_LANES}", mode), "}"]
            # What is left, where the size is no constant.
            return [*lines, *(run(chunk, end, mode) if boxes else []), "}"]

        def loop(begin: str, end: str, mode: str) -> list[str]:
            if mode not in (_ALL, _ACTIVE) or not (self.rows_before or self.rows_after):
                return chunks(begin, end, mode)
            part, count = self.part, self.count
            return [
                f"for (int64_t {part} = {begin}; {part} < {end}; {part} += {_PART}) {{",
                f"const int64_t {count} = least({_PART}, {end} - {part});",
                *self.rows_before,
                *chunks(part, f"{part} + {count}", mode),
                *self.rows_after,
                "}",
            ]

        each = loop("0", str(size), _EACH) if _EACH in self.bodies else []
        if not boxes:
            return loop("0", str(size), _ALL), each
        first, last = rows[boxes[0]]
        for box in boxes[1:]:
            begin, end = rows[box]
            first, last = f"most({first}, {begin})", f"least({last}, {end})"
        low, high = self.function.name("b"), self.function.name("e")
        rest = _IDLE if _IDLE in self.bodies else _TESTED
        lines = [f"const int64_t {low} = {first}, {high} = most({low}, {last});"]
        has_rest = rest in self.bodies
        if has_rest:
            lines += loop("0", low, rest)
        lines += loop(low, high, _ACTIVE)
        if has_rest:
            lines += loop(high, str(size), rest)
        return lines, each

    # ------------------------------------------------------------------ accesses

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

    # -------------------------------------------------------------------- values

    def _maker(self, value: Value) -> Op | None:
        return self.function.lowered.makers.get(value) if value in self.function.lowered.inline else None

    def _number(self, value: Value, at: tuple[Index, ...]) -> str | None:
        if kinds.is_number(value.type):
            return self.numbers.named(self.function.number(value))
        if value in self.mine or any(one.depth for one in at) or not self.function.has_buffer(value):
            return None
        assert isinstance(value.type, Tensor)
        return self.numbers.named(f"{self.function.buffer(value)}[{flat_index(at, value.type.shape)}]")

    def value(self, value: Value, at: tuple[Index, ...]) -> tuple[str, int]:
        """Return C++ for an element, and how deep in the loops it is known."""
        if kinds.is_number(value.type):
            return self.function.number(value), 0
        if value in self.masks and at == self.at and self.mode in (_ACTIVE, _IDLE):
            # With several masks, the bodies are for where all are true, and for all the rest, tested.
            return ("true" if self.mode == _ACTIVE else "false"), self.depth
        place = tuple(one.text for one in at)
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
            depth = max((one.depth for one in at), default=0)
            element = f"{self.function.buffer(value)}[{flat_index(at, value.type.shape)}]"
            return self._line(self.function.element_type(value), element, depth), depth
        if maker.name == "arith.constant":
            constant = maker.attributes["value"]
            if isinstance(constant, Dense) and not constant.is_splat:
                depth = max((one.depth for one in at), default=0)
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
                depth = max((one.depth for one in at), default=0)
                element = f"{self.function.buffer(source)}[{flat_index(at, value.type.shape)}]"
                return self._line(self.function.element_type(value), element, depth), depth
            return self.value(source, inner)
        if maker.name == "tt.gather":
            return self._gathered(maker, at)
        if maker.name in kinds.LOADS:
            return self._load(maker), self.depth
        arguments = [self.value(operand, at) for operand in maker.operands]
        depth = max((one for _, one in arguments), default=0)
        return self.computed(maker, value, [one for one, _ in arguments], depth), depth

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
        if op.attributes.get("pack", 1) != 1:
            raise elements.refused(op, "tl.map_elementwise with pack > 1")
        lines, results = self.function.combined(op.regions[0], arguments)
        self._lines(depth).extend(lines)
        return results[op.results.index(value)]

    def _picked(self, op: Op, value: Value, at: tuple[Index, ...]) -> tuple[str, int]:
        assert isinstance(value.type, Tensor)
        if op.name == "tt.split":
            half = op.results.index(value)
            return self.value(op.operands[0], (*at, Index(str(half), 0, Linear(half))))
        depth = max((one.depth for one in at), default=0)
        if op.name == "tt.join":
            (a, _), (b, _) = (self.value(operand, at[:-1]) for operand in op.operands)
            return self._line(
                self.function.element_type(value), f"{at[-1].text} == 0 ? {a} : {b}", depth
            ), depth
        first = op.operands[0].type
        assert isinstance(first, Tensor)
        size = first.shape[0]
        one = Index(f"({at[0].text} % {size})", at[0].depth, None)
        (a, _), (b, _) = (self.value(operand, (one, *at[1:])) for operand in op.operands)
        kind = self.function.element_type(value)
        return self._line(kind, f"{at[0].text} < {size} ? {a} : {b}", depth), depth

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
        """Return C++ of whether the address of this element has wrapped around; "" if nobody asks."""
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

    # --------------------------------------------------------------------- sinks

    def _sink(self, op: Op) -> None:
        if op.name in kinds.LOADS:
            self.value(op.result, self.at)
        elif op.name in kinds.STORES:
            self._store(op)
        elif op.name == "tt.reduce":
            self._reduce(op)
        elif op.name in kinds.ORDERED:
            self._ordered(op)
        for result in op.results:
            if result in self.nest.kept:
                assert isinstance(result.type, Tensor)
                rounded = self._rounded(result)
                element, _ = self.value(rounded or result, self.at)
                if rounded is not None:
                    first = flat_index((*self.at[: self.loops[-1]], *self._part_index()), result.type.shape)
                    self.rows_after.append(
                        f"round_row({self.function.buffer(result)} + {first}, {self.count});"
                    )
                place = f"{self.function.buffer(result)}[{flat_index(self.at, result.type.shape)}]"
                self.bodies[self.mode].append(assigned(place, element, self.function.element_type(result)))

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
        if access is None or self.mode not in (_ALL, _ACTIVE) or not self.depth:
            return False
        return access.linear.steps.get(self.depth - 1, 0) == 2 and self.sizes[-1] >= 8

    def _row_array(self) -> str:
        name = self.function.name("h")
        self.before[self.depth - 1].append(f"alignas(64) float {name}[{_PART}];")
        return name

    def _part_index(self) -> tuple[Index, ...]:
        zero = Index("0", 0, Linear(0))
        rest = len(self.at) - self.loops[-1] - 1
        return (Index(self.part, self.depth, None), *[zero] * rest)

    def _loaded_row(self, op: Op, access: _Access, mask: Value | None, other: str) -> str | None:
        """Return an element of a row of halves as a float, where floats are all that is made of it."""
        if not self._by_rows(access) or self.function.element_type(op.result) != "f16":
            return None
        users = self.function.lowered.users.get(op.result, [])
        if op.result in self.nest.kept or any(one.name != "arith.extf" for one in users):
            return None
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
        kinds_of = [self.function.element_type(one) for one in (value, source)]
        if kinds_of != ["f16", "float"] or "toward_zero" in maker.attributes.get("words", ()):
            return None
        return source

    def _rounded(self, value: Value) -> Value | None:
        """Return the float32 that a kept one is made of by rounding to float16."""
        maker = self.function.lowered.makers.get(value)
        if maker is None or maker.name != "arith.extf" or self.mode not in (_ALL, _ACTIVE) or self.is_checked:
            return None
        if self.function.element_type(value) != "float" or not self.depth or self.sizes[-1] < 8:
            return None
        return self._narrowed(maker.operands[0])

    def _known_access(self, op: Op) -> _Access | None:
        """Return what is known of an access in this body; None if the element is to be checked."""
        access = self.accesses.get(op)
        return None if self.mode == _EACH and not self._is_sum(access) else access

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
        if access.box is None or self.mode == _ACTIVE:
            return self._line(kind, element, self.depth)
        if self.mode == _IDLE:
            return self._line(kind, other, self.depth)
        return self._line(kind, f"{self._is_in(access.box)} ? {element} : {other}", self.depth)

    def _is_in(self, box: Box) -> str:
        begin, end = self.rows[box]
        return f"({self.names[-1]} >= {begin} && {self.names[-1]} < {end})"

    def _store(self, op: Op) -> None:
        kind = self.function.element_type(op.operands[1])
        access = self._known_access(op)
        mask = _mask(op)
        if access is not None and access.box is not None and self.mode == _IDLE:
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
        elif access.box is not None and self.mode in (_TESTED, _EACH):
            condition = f"if ({self._is_in(access.box)}) "
        lines.append(condition + assigned(place, element, kind))

    def _total_type(self, op: Op) -> str:
        kind = self.function.element_type(op.operands[0])
        is_sum = kinds.simple_combination(op) == "arith.addf"
        return "float" if kind in ("f16", "bf16") and is_sum else kind

    def _reduce(self, op: Op) -> None:
        combination = kinds.simple_combination(op)
        assert combination is not None
        source = op.operands[0]
        assert isinstance(source.type, Tensor)
        axis = op.attributes["axis"]
        kind = self.function.element_type(source)
        total = self._total_type(op)
        element, _ = self.value(source, self.at)
        element = element if total == kind else f"{total}({element})"
        start = f"{total}({_START[combination].format(T=total)})"
        outer = self.at[:axis] + self.at[axis + 1 :]
        result_shape = source.type.shape[:axis] + source.type.shape[axis + 1 :]
        place = flat_index(outer, result_shape)
        loop = self.loops.index(axis) if axis in self.loops else None
        body = self.bodies[self.mode]
        is_first = op not in self._reduced
        self._reduced.add(op)
        if loop is None:
            self._result(op, place, f"{kind}({element})", body)
            return
        if loop == self.depth - 1 and self.chunk and total in ("float", "double"):
            if is_first:
                self._side_by_side(op, combination, total, start)
                self._result(op, place, f"{kind}({self.totals[op]}[0])", self.after[loop])
            name = f"{self.totals[op]}[{self.names[-1]} - {self.chunk}]"
            body.append(f"{name} = {self._combined(op, combination, total, name, element)};")
            return
        if loop == self.depth - 1:
            if is_first:
                self.totals[op] = self.function.name("a")
                self.before[loop].append(f"{total} {self.totals[op]} = {start};")
                self._result(op, place, f"{kind}({self.totals[op]})", self.after[loop])
            name = self.totals[op]
            body.append(f"{name} = {self._combined(op, combination, total, name, element)};")
            sign = _SIGNS.get(combination)
            if sign is not None and total in _REDUCED_TYPES:
                self.reductions.append((sign, name))
            return
        # Rows are added to one another.
        if is_first:
            self.totals[op] = self.function.scratch(total, max(_size(result_shape), 1))
            name = self.totals[op]
            counter = self.function.name("k")
            fill = f"for (int64_t {counter} = 0; {counter} < {max(_size(result_shape), 1)}; ++{counter})"
            self.before[0].append(f"{fill} {name}[{counter}] = {start};")
            self._copy_totals(op, name, kind, result_shape)
        name = f"{self.totals[op]}[{place}]"
        body.append(f"{name} = {self._combined(op, combination, total, name, element)};")

    def _side_by_side(self, op: Op, combination: str, total: str, start: str) -> None:
        """Declare an array of sums, which are added up by halves behind the loop."""
        name = self.totals[op] = self.function.name("a")
        half, k = self.function.name("h"), self.function.name("k")
        fill = f"for (int64_t {k} = 0; {k} < {_LANES}; ++{k}) {name}[{k}] = {start};"
        self.before[-2] += [f"alignas(64) {total} {name}[{_LANES}];", fill]
        both = self._combined(op, combination, total, f"{name}[{k}]", f"{name}[{k} + {half}]")
        self.after[-2] += [
            f"for (int64_t {half} = {_LANES // 2}; {half} > 0; {half} /= 2)",
            f"for (int64_t {k} = 0; {k} < {half}; ++{k}) {name}[{k}] = {both};",
        ]

    def _combined(self, op: Op, combination: str, total: str, a: str, b: str) -> str:
        if combination == "arith.maxnumf" and total in _REDUCED_TYPES:
            return f"{b} > {a} ? {b} : {a}"
        if combination == "arith.minnumf" and total in _REDUCED_TYPES:
            return f"{b} < {a} ? {b} : {a}"
        return f"{total}({elements.combination(combination, total, a, b)})"

    def _result(self, op: Op, place: str, element: str, lines: list[str]) -> None:
        if kinds.is_number(op.result.type):
            lines.append(f"{self.function.number(op.result)} = {element};")
        else:
            lines.append(f"{self.function.buffer(op.result)}[{place}] = {element};")

    def _copy_totals(self, op: Op, name: str, kind: str, shape: tuple[int, ...]) -> None:
        if kinds.is_number(op.result.type):
            self.after[0].append(f"{self.function.number(op.result)} = {kind}({name}[0]);")
            return
        counter = self.function.name("k")
        self.after[0].append(
            f"for (int64_t {counter} = 0; {counter} < {_size(shape)}; ++{counter}) "
            f"{self.function.buffer(op.result)}[{counter}] = {kind}({name}[{counter}]);"
        )

    def _ordered(self, op: Op) -> None:
        arguments = []
        for value in op.operands:
            is_block = isinstance(value.type, Tensor)
            arguments.append(self.value(value, self.at)[0] if is_block else self.function.number(value))
        has_wrapped = self._has_wrapped(op) if op.name.startswith("tt.atomic") else ""
        place = [one.text for one in self.at]
        lines, result = ordered(self.function, op, arguments, place, has_wrapped=has_wrapped)
        self.bodies[self.mode].extend(lines)
        if op.results and not kinds.is_number(op.result.type):
            mode = self.mode if self.depth else ""
            self.known[op.result, tuple(place), mode] = (result, self.depth)


def assigned(place: str, element: str, kind: str) -> str:
    """Return the statement that writes an element to memory."""
    # A compiler vectorises stores of numbers, and not of structures.
    if kind in ("f16", "bf16") or kind.startswith("f8"):
        return f"{place}.bits = {element}.bits;"
    return f"{place} = {element};"


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for one in shape:
        size *= one
    return size


def _mask(op: Op) -> Value | None:
    position = 1 if op.name in kinds.LOADS else 2
    return op.operands[position] if len(op.operands) > position else None


def _pointee(op: Op) -> Type:
    pointer = element_of(op.operands[0].type)
    assert isinstance(pointer, Pointer)
    return pointer.pointee


_START = {
    "arith.addf": "0",
    "arith.addi": "0",
    "arith.mulf": "1",
    "arith.muli": "1",
    "arith.maxnumf": "-INFINITY",
    "arith.minnumf": "INFINITY",
    "arith.maxsi": "std::numeric_limits<{T}>::min()",
    "arith.minsi": "std::numeric_limits<{T}>::max()",
    "arith.maxui": "0",
    "arith.minui": "-1",
    "arith.andi": "-1",
    "arith.ori": "0",
    "arith.xori": "0",
}
_SIGNS = {
    "arith.addf": "+",
    "arith.addi": "+",
    "arith.mulf": "*",
    "arith.muli": "*",
    "arith.maxnumf": "max",
    "arith.minnumf": "min",
    "arith.maxsi": "max",
    "arith.minsi": "min",
    "arith.andi": "&",
    "arith.ori": "|",
    "arith.xori": "^",
}
_REDUCED_TYPES = {"float", "double", "int32_t", "int64_t", "int16_t", "int8_t"}

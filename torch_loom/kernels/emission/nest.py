"""C++ of one loop over a block.

Where addresses are sums over the indices, the ends of each are checked in front of the loop, which then reads
neighbours without a branch. If a check fails, the same loop runs with every element checked: it finds which
one is wrong, or that none is.
"""

from __future__ import annotations

from torch_loom.kernels.emission.linear import Box, flat_index
from torch_loom.kernels.emission.nest_memory import PART, assigned
from torch_loom.kernels.emission.nest_reductions import LANES, NestReductions
from torch_loom.kernels.emission.nest_values import ACTIVE, ALL, EACH, IDLE, TESTED
from torch_loom.kernels.emission.ordered import ordered
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.plan import Nest
from torch_loom.kernels.ttir.model import Op, Tensor, Value

# Of deeper nests a compiler would unroll all short loops, and take many times as long for the same speed.
_MOST_UNROLLED = 2


class NestText(NestReductions):
    """The text of a loop."""

    @property
    def rolled(self) -> list[str]:
        """Return what keeps a compiler from unrolling a loop, where the nest is deep."""
        return ["#pragma GCC unroll 1"] if self.depth > _MOST_UNROLLED else []

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
        self.bodies[ALL] = []
        element, _ = self.value(value, self.at)
        target = f"{place}[{flat_index(self.at, value.type.shape)}]"
        self.bodies[ALL].append(assigned(target, element, self.function.element_type(value)))
        inner = self.bodies[ALL]
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
        # In the order of the program: the text is the same in every process.
        for op in loads:
            self.function.buffer(op.result)
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
        modes = [ALL] if not boxes else [ACTIVE]
        if boxes and self._needs_rest(boxes):
            modes.append(IDLE if len(boxes) == 1 else TESTED)
        rows = self._rows(boxes)
        is_fine = self._row_check()
        if is_fine:
            modes.append(EACH)
        for mode in modes:
            self.mode = mode
            self.bodies[mode] = []
            for op in self.nest.ops:
                self._sink(op)
        if not self.depth:
            return [*self.before[0], *self.bodies[ALL], *self.after[0]]
        inner, each = self._inner(boxes, rows)
        if is_fine:
            head = f"if (__builtin_expect({is_fine}, 1)) {{"
            inner = [head, *inner, "} else {", *each, "}"]
        for loop in reversed(range(self.depth)):
            if loop < self.depth - 1:
                name, size = self.names[loop], self.sizes[loop]
                inner = [*self.rolled, f"for (int64_t {name} = 0; {name} < {size}; ++{name}) {{", *inner, "}"]
            inner = [*self.before[loop], *inner, *self.after[loop]]
        return inner

    def _inner(self, boxes: list[Box], rows: dict[Box, tuple[str, str]]) -> tuple[list[str], list[str]]:
        """Return the innermost loop, and the same for rows whose elements are checked one by one."""
        name, size = self.names[-1], self.sizes[-1]
        pragmas = ["#pragma GCC ivdep", *self.rolled]
        if self.reductions:
            clauses = " ".join(dict.fromkeys(f"reduction({sign}:{item})" for sign, item in self.reductions))
            pragmas = [f"#pragma omp simd {clauses}"]

        def run(begin: str, end: str, mode: str) -> list[str]:
            head = f"for (int64_t {name} = {begin}; {name} < {end}; ++{name}) {{"
            return [*pragmas, head, *self.bodies[mode], "}"]

        def chunks(begin: str, end: str, mode: str) -> list[str]:
            chunk = self.chunk
            if not chunk:
                return run(begin, end, mode)
            if mode not in (ALL, ACTIVE):
                head = f"for (int64_t {chunk} = {begin}; {chunk} < {end}; {chunk} += {LANES}) {{"
                return [head, *run(chunk, f"least({chunk} + {LANES}, {end})", mode), "}"]
            head = f"for (; {chunk} + {LANES} <= {end}; {chunk} += {LANES}) {{"
            lines = ["{", f"int64_t {chunk} = {begin};", head, *run(chunk, f"{chunk} + {LANES}", mode), "}"]
            # What is left, where the size is no constant.
            return [*lines, *(run(chunk, end, mode) if boxes else []), "}"]

        def loop(begin: str, end: str, mode: str) -> list[str]:
            if mode not in (ALL, ACTIVE) or not (self.rows_before or self.rows_after):
                return chunks(begin, end, mode)
            part, count = self.part, self.count
            return [
                f"for (int64_t {part} = {begin}; {part} < {end}; {part} += {PART}) {{",
                f"const int64_t {count} = least({PART}, {end} - {part});",
                *self.rows_before,
                *chunks(part, f"{part} + {count}", mode),
                *self.rows_after,
                "}",
            ]

        each = loop("0", str(size), EACH) if EACH in self.bodies else []
        if not boxes:
            return loop("0", str(size), ALL), each
        first, last = rows[boxes[0]]
        for box in boxes[1:]:
            begin, end = rows[box]
            first, last = f"most({first}, {begin})", f"least({last}, {end})"
        low, high = self.function.name("b"), self.function.name("e")
        rest = IDLE if IDLE in self.bodies else TESTED
        lines = [f"const int64_t {low} = {first}, {high} = most({low}, {last});"]
        has_rest = rest in self.bodies
        if has_rest:
            lines += loop("0", low, rest)
        lines += loop(low, high, ACTIVE)
        if has_rest:
            lines += loop(high, str(size), rest)
        return lines, each

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

    def _ordered(self, op: Op) -> None:
        arguments = []
        for value in op.operands:
            is_block = isinstance(value.type, Tensor)
            arguments.append(self.value(value, self.at)[0] if is_block else self.function.number(value))
        has_wrapped = self._has_wrapped(op) if op.name.startswith("tt.atomic") else ""
        place = [each.text for each in self.at]
        lines, result = ordered(self.function, op, arguments, place, has_wrapped=has_wrapped)
        self.bodies[self.mode].extend(lines)
        if op.results and not kinds.is_number(op.result.type):
            mode = self.mode if self.depth else ""
            self.known[op.result, tuple(place), mode] = (result, self.depth)

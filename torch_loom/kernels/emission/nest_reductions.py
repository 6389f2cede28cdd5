"""Reductions in a loop over a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.emission.linear import flat_index
from torch_loom.kernels.emission.nest_memory import NestMemory
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.plan import Nest
from torch_loom.kernels.ttir.model import Op, Tensor

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

# How many sums of floats are added up beside one another: an addition takes several cycles.
LANES = 64
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


class NestReductions(NestMemory):
    """The reductions of a loop."""

    def __init__(self, function: FunctionText, nest: Nest, *, is_checked: bool = False) -> None:
        super().__init__(function, nest, is_checked=is_checked)
        self.reductions: list[tuple[str, str]] = []
        self.totals: dict[Op, str] = {}
        self._reduced: set[Op] = set()
        # Where the elements begin that have a sum each; "" where all have one.
        self.chunk = self._sums_side_by_side()

    def _sums_side_by_side(self) -> str:
        if not self.depth or self.sizes[-1] < 4 * LANES or self.sizes[-1] % LANES:
            return ""
        for op in self.nest.ops:
            is_inner = op.name == "tt.reduce" and op.attributes["axis"] == self.loops[-1]
            if is_inner and self._total_type(op) in ("float", "double"):
                return self.function.name("c")
        return ""

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
        fill = f"for (int64_t {k} = 0; {k} < {LANES}; ++{k}) {name}[{k}] = {start};"
        self.before[-2] += [f"alignas(64) {total} {name}[{LANES}];", fill]
        both = self._combined(op, combination, total, f"{name}[{k}]", f"{name}[{k} + {half}]")
        self.after[-2] += [
            f"for (int64_t {half} = {LANES // 2}; {half} > 0; {half} /= 2)",
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


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size

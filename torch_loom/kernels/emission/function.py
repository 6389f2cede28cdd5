"""C++ of a function: its steps, loops and branches, and where its blocks are in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from torch_loom.kernels.emission import alone, elements
from torch_loom.kernels.emission.assembly import translated
from torch_loom.kernels.emission.nest import NestText
from torch_loom.kernels.emission.offsets import WRAPS, can_wrap, offset_values
from torch_loom.kernels.emission.ordered import ordered, quoted
from torch_loom.kernels.emission.types import literal
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.plan import Alone, Control, LoweredFunction, Nest, Plan, Step
from torch_loom.kernels.ttir.model import Block, Dense, Op, Region, Tensor, Value, element_of

if TYPE_CHECKING:
    from torch_loom.kernels.emission.kernel import KernelText

_ALIGNMENT = 64


class FunctionText:
    """C++ of one function.

    Args:
        kernel: the text that it is part of.
        lowered: the function.
    """

    def __init__(self, kernel: KernelText, lowered: LoweredFunction) -> None:
        self.kernel = kernel
        self.lowered = lowered
        self._names = itertools.count()
        self._numbers: dict[Value, str] = {}
        self._buffers: dict[Value, str] = {}
        # Declared in front of all: blocks in memory, and what gotos would jump over.
        self.head: list[str] = []
        # Where to declare what gotos would jump over.
        self._ahead: list[str] | None = self.head if len(lowered.plans) > 1 else None
        self._offsets = offset_values(lowered) if kernel.is_watched else set()

    # -------------------------------------------------------------------- names

    def name(self, letter: str) -> str:
        return f"{letter}{next(self._names)}"

    def element_type(self, value: Value) -> str:
        """Return the C++ type of a value's elements.

        Raises:
            UnsupportedKernelError: it has none.
        """
        maker = self.lowered.makers.get(value)
        return elements.type_name(maker or Op("an argument", results=(value,)), value.type)

    def number(self, value: Value) -> str:
        """Return the variable of a number or an address."""
        if value not in self._numbers:
            maker = self.lowered.makers.get(value)
            if maker is not None and maker.name == "arith.constant":
                constant = literal(maker.attributes["value"], element_of(value.type))
                self._numbers[value] = constant
            else:
                self._numbers[value] = self.name("v")
        return self._numbers[value]

    def set_number(self, value: Value, name: str) -> None:
        self._numbers[value] = name

    def has_buffer(self, value: Value) -> bool:
        return value in self._buffers

    def set_buffer(self, value: Value, name: str) -> None:
        self._buffers[value] = name

    def buffer(self, value: Value) -> str:
        """Return the pointer to the memory of a block."""
        if value not in self._buffers:
            assert isinstance(value.type, Tensor)
            self._buffers[value] = self.scratch(self.element_type(value), value.type.size)
        return self._buffers[value]

    def scratch(self, kind: str, count: int) -> str:
        """Return a pointer to new memory of this function."""
        name = self.name("m")
        size = {"bool": 1, "int8_t": 1, "int16_t": 2, "f16": 2, "bf16": 2, "int64_t": 8, "double": 8}
        offset = self.kernel.reserve(size.get(kind, 1 if kind.startswith("f8") else 4) * count)
        self.head.append(
            f"{kind}* const __restrict {name} = "
            f"({kind}*)__builtin_assume_aligned(program.blocks + {offset}, {_ALIGNMENT});"
        )
        return name

    def table(self, value: Value, constant: Dense) -> str:
        """Return an array of constants."""
        name = self.name("c")
        kind = self.element_type(value)
        shown = ", ".join(literal(each, element_of(value.type)) for each in constant.values)
        self.head.append(f"static const {kind} {name}[] = {{{shown}}};")
        return name

    def site(self, op: Op) -> str:
        return self.kernel.site(self, op)

    # --------------------------------------------------------------------- steps

    def lines(self) -> list[str]:
        """Return the lines of the function's body."""
        lines: list[str] = []
        if self._ahead is None:
            lines = self._plan(self.lowered.plans[0], self._return)
        else:
            for plan in self.lowered.plans[1:]:
                for argument in plan.block.arguments:
                    self.declare(argument)
            for plan in self.lowered.plans:
                if plan is not self.lowered.plans[0]:
                    lines.append(f"{_label(plan.block.label)}:;")
                lines += self._plan(plan, self._end)
        return [*self.head, *lines]

    def _plan(self, plan: Plan, finish: Callable[[Op], list[str]]) -> list[str]:
        lines = []
        for step in plan.steps:
            lines += self._step(step)
        if plan.end is not None:
            lines += finish(plan.end)
        return lines

    def _step(self, step: Step) -> list[str]:
        if isinstance(step, Alone):
            lines = self._declared(step.op)
            return [*lines, *alone.lines(self, step.op)]
        if isinstance(step, Control):
            return self._control(step)
        lines = []
        if not step.shape:
            for op in step.ops:
                lines += self._scalar(op)
            return lines
        for op in step.ops:
            lines += self._declared(op)
        return [*lines, *NestText(self, step, is_checked=self.kernel.is_watched).lines()]

    def _declared(self, op: Op) -> list[str]:
        """Declare the numbers that an op returns, which its loop will set."""
        lines = []
        for result in op.results:
            if kinds.is_number(result.type):
                lines += self.declare(result)
            else:
                continue
        return lines

    def declare(self, value: Value, begin: str = "") -> list[str]:
        """Return the declaration of a number that is set later."""
        kind = self.element_type(value)
        if isinstance(value.type, Tensor):
            self.buffer(value)
            return []
        name = self.number(value)
        if self._ahead is not None:
            self._ahead.append(f"{kind} {name};")
            return [f"{name} = {begin};"] if begin else []
        return [f"{kind} {name} = {begin};" if begin else f"{kind} {name};"]

    def _scalar(self, op: Op) -> list[str]:
        """An op on numbers."""
        if op.name == "arith.constant":
            return []
        if op.name in ("tt.load", "tt.store") or op.name in kinds.ORDERED:
            return [*self._declared(op), *self._scalar_access(op)]
        if op.name == "tt.unsplat":
            source = op.operands[0]
            place = self.scratch(self.element_type(source), 1)
            return [*self.fill(source, place), *self._set(op, f"{place}[0]")]
        if op.name == "ub.poison":
            return self._set(op, f"{self.element_type(op.result)}()")
        if op.name in ("tt.get_program_id", "tt.get_num_programs"):
            axis = (
                _AXES[op.attributes["words"][0]] if op.attributes.get("words") else int(op.attributes["axis"])
            )
            return self._set(op, f"program.{'id' if op.name.endswith('id') else 'count'}[{axis}]")
        arguments = [self.number(value) for value in op.operands]
        if op.name == "tt.elementwise_inline_asm":
            lines, results = self.assembly(op, arguments)
        elif op.name == "tt.map_elementwise":
            lines, results = self.combined(op.regions[0], arguments)
        elif op.name in ("arith.mulsi_extended", "arith.mului_extended", "arith.addui_extended"):
            lines, results = [], elements.extended(op, arguments)
        else:
            if not op.results:
                raise elements.refused(op, f"the op {op.name}")
            lines = self._checked_offset(op, arguments)
            return [*lines, *self._set(op, elements.expression(op, arguments))]
        for result, text in zip(op.results, results, strict=True):
            lines += self.declare(result, text)
        return lines

    def _set(self, op: Op, expression: str) -> list[str]:
        return self.declare(op.result, expression)

    def _checked_offset(self, op: Op, arguments: list[str]) -> list[str]:
        if op.results[0] not in self._offsets or not can_wrap(op):
            return []
        wraps = WRAPS[op.name].format(*arguments, T=self.element_type(op.result))
        return [f"check_wrapped(program, {quoted(str(op.place))}, {wraps});"]

    def read(self, op: Op, address: str, *more: str) -> str:
        """Return C++ of a checked load."""
        kind = self.element_type(op.result)
        access = ", kVolatileRead" if op.attributes.get("isVolatile") else ""
        given = ", ".join(["program", self.site(op), address, *filter(None, more)])
        return f"read_checked<{kind}{access}>({given})"

    def _scalar_access(self, op: Op) -> list[str]:
        arguments = [self.number(value) for value in op.operands]
        if op.name in kinds.ORDERED:
            return ordered(self, op, arguments, [])[0]
        if op.name == "tt.load":
            kind = self.element_type(op.result)
            read = self.read(op, arguments[0])
            if len(arguments) > 1:
                other = arguments[2] if len(arguments) > 2 else f"{kind}()"
                read = f"{arguments[1]} ? {read} : {other}"
            return [f"{self.number(op.result)} = {read};"]
        kind = self.element_type(op.operands[1])
        condition = f"if ({arguments[2]}) " if len(arguments) > 2 else ""
        return [
            f"{condition}write_checked<{kind}>(program, {self.site(op)}, {arguments[0]}, {arguments[1]});"
        ]

    # ------------------------------------------------------------------- control

    def _control(self, step: Control) -> list[str]:
        op = step.op
        if op.name == "scf.for":
            lines = self._for(step)
        elif op.name == "scf.if":
            lines = self._if(step)
        elif op.name == "scf.while":
            lines = self._while(step)
        else:
            lines = self.kernel.call(self, op)
        return lines

    def _inside(self, plan: Plan, finish: Callable[[Op], list[str]]) -> list[str]:
        ahead, self._ahead = self._ahead, None
        lines = self._plan(plan, finish)
        self._ahead = ahead
        return lines

    def _for(self, step: Control) -> list[str]:
        op = step.op
        (plan,) = step.regions[0]
        index, *carried = plan.block.arguments
        lower, upper, by = (self.number(value) for value in op.operands[:3])
        assert plan.end is not None
        lines, inner_head, turn = self._carried(op.results, op.operands[3:], carried, plan)
        kind = self.element_type(index)
        counter = self.name("k")
        wide = "uint64_t" if op.attributes.get("unsigned") else "int64_t"
        body = [self._turn(op), f"const {kind} {self.number(index)} = {kind}({counter});", *inner_head]
        body += self._inside(plan, lambda end: turn(end.operands))
        head = f"for ({wide} {counter} = {lower}; {counter} < {upper}; {counter} += {by}) {{"
        return [*lines, head, *body, "}"]

    def _carried(
        self, results: tuple[Value, ...], begins: tuple[Value, ...], arguments: list[Value], plan: Plan
    ) -> tuple[list[str], list[str], Callable[[tuple[Value, ...]], list[str]]]:
        """Return lines in front of a loop, at the begin of a turn, and what writes those at its end.

        A block that is carried has two places, which change at the end of each turn.
        """
        before: list[str] = []
        begin: list[str] = []
        assert plan.end is not None
        ends = plan.end.operands
        own = _made_in(plan)
        places_of: dict[int, tuple[str, str, str]] = {}
        for number, (result, value, argument) in enumerate(zip(results, begins, arguments, strict=True)):
            kind = self.element_type(result)
            if kinds.is_number(result.type):
                before += self.declare(result, self.number(value))
                begin.append(f"const {kind} {self.number(argument)} = {self.number(result)};")
                continue
            assert isinstance(result.type, Tensor)
            chain = self.lowered.in_place.get(argument)
            if chain is not None:
                # Each turn writes over what it has read.
                place = self.scratch(kind, result.type.size)
                before += self.fill(value, place)
                for each in (result, argument, *chain):
                    self.set_buffer(each, place)
                continue
            places = [self.scratch(kind, result.type.size) for _ in range(2)]
            now, after = self.name("q"), self.name("q")
            for name, place in zip((now, after), places, strict=True):
                if self._ahead is not None:
                    self._ahead.append(f"{kind}* {name};")
                    before.append(f"{name} = {place};")
                else:
                    before.append(f"{kind}* {name} = {place};")
            before += self.fill(value, now)
            self.set_buffer(result, now)
            here, there = self.name("m"), self.name("m")
            self.set_buffer(argument, here)
            for name, place in ((here, now), (there, after)):
                aligned = f"__builtin_assume_aligned({place}, {_ALIGNMENT})"
                begin.append(f"{kind}* const __restrict {name} = ({kind}*){aligned};")
            places_of[number] = (now, after, there)
            if ends[number] in own:
                self.set_buffer(ends[number], there)

        def turn(ends: tuple[Value, ...]) -> list[str]:
            lines: list[str] = []
            sets: list[str] = []
            for number, (result, end) in enumerate(zip(results, ends, strict=True)):
                if kinds.is_number(result.type):
                    name = self.name("y")
                    lines.append(f"const {self.element_type(result)} {name} = {self.number(end)};")
                    sets.append(f"{self.number(result)} = {name};")
                    continue
                if number not in places_of:
                    continue
                now, after, there = places_of[number]
                lines += self.fill(end, there)
                sets.append(f"swap_places({now}, {after});")
            return lines + sets

        return before, begin, turn

    def fill(self, value: Value, place: str) -> list[str]:
        """Return lines that write a block to a place in memory."""
        assert isinstance(value.type, Tensor)
        if value not in self.lowered.inline:
            return [f"copy_block({place}, {self.buffer(value)}, {value.type.size});"]
        nest = NestText(self, Nest(value.type.shape, [], set()))
        return nest.filled(value, place)

    def _if(self, step: Control) -> list[str]:
        op = step.op
        lines: list[str] = []
        for result in op.results:
            lines += self.declare(result)

        def finish(end: Op) -> list[str]:
            return self._assign(op.results, end.operands)

        lines.append(f"if ({self.number(op.operands[0])}) {{")
        lines += self._inside(step.regions[0][0], finish)
        if len(step.regions) > 1:
            lines += ["} else {", *self._inside(step.regions[1][0], finish)]
        return [*lines, "}"]

    def _assign(self, to: tuple[Value, ...], values: tuple[Value, ...]) -> list[str]:
        lines: list[str] = []
        sets: list[str] = []
        for target, value in zip(to, values, strict=True):
            if kinds.is_number(target.type):
                name = self.name("y")
                lines.append(f"const {self.element_type(target)} {name} = {self.number(value)};")
                sets.append(f"{self.number(target)} = {name};")
            else:
                lines += self.fill(value, self.buffer(target))
        return lines + sets

    def _while(self, step: Control) -> list[str]:
        op = step.op
        (before,), (after,) = step.regions
        lines: list[str] = []
        for result in op.results:
            lines += self.declare(result)
        carried = [Value(f"{each.name}_carried", each.type) for each in before.block.arguments]
        for each, value in zip(carried, op.operands, strict=True):
            if kinds.is_number(each.type):
                lines += self.declare(each, self.number(value))
            else:
                lines += self.fill(value, self.buffer(each))

        def test(end: Op) -> list[str]:
            condition, *values = end.operands
            found = [
                f"if (!{self.number(condition)}) {{",
                *self._assign(op.results, tuple(values)),
                "break;",
                "}",
            ]
            for argument, value in zip(after.block.arguments, values, strict=True):
                if kinds.is_number(argument.type):
                    found.append(
                        f"const {self.element_type(argument)} {self.number(argument)} = {self.number(value)};"
                    )
                else:
                    found += self.fill(value, self.buffer(argument))
            return found

        body: list[str] = []
        for argument, each in zip(before.block.arguments, carried, strict=True):
            if kinds.is_number(argument.type):
                body.append(
                    f"const {self.element_type(argument)} {self.number(argument)} = {self.number(each)};"
                )
            else:
                body += self.fill(each, self.buffer(argument))
        body += self._inside(before, test)
        body += self._inside(after, lambda end: self._assign(tuple(carried), end.operands))
        return [*lines, "for (;;) {", self._turn(op), *body, "}"]

    def _turn(self, op: Op) -> str:
        return f"turn(program, {quoted(str(op.place))});"

    def _return(self, end: Op) -> list[str]:
        return self.kernel.returned(self, end)

    def _end(self, end: Op) -> list[str]:
        if end.name == "tt.return":
            return [*self._return(end), "return;"]
        return self._branch(end, [plan.block for plan in self.lowered.plans], _label)

    def _branch(self, end: Op, blocks: Sequence[Block], named: Callable[[str], str]) -> list[str]:
        jumps = []
        arguments = {block.label: block.arguments for block in blocks}
        for label, values in end.attributes["targets"]:
            jumps.append(["{", *self._assign(arguments[label], values), f"goto {named(label)};", "}"])
        if len(jumps) == 1:
            return jumps[0]
        return [f"if ({self.number(end.operands[0])})", *jumps[0], "else", *jumps[1]]

    # ------------------------------------------------------------------- regions

    def combined(self, region: Region, arguments: list[str]) -> tuple[list[str], list[str]]:
        """Return lines for a region of ops on numbers, and the names of what it returns."""
        first, *others = region.blocks
        kept, ahead = self._numbers.copy(), self._ahead
        self._ahead = [] if others else None
        # Each time, they are other variables.
        for block in region.blocks:
            for value in (*block.arguments, *_results_in(block)):
                self._numbers.pop(value, None)
        self._numbers.update(zip(first.arguments, arguments, strict=True))
        if others:
            lines, results = self._combined_blocks(region.blocks)
        else:
            lines = self._scalars(first)
            results = [self.number(value) for value in first.ops[-1].operands]
        self._numbers, self._ahead = kept, ahead
        return lines, results

    def _scalars(self, block: Block) -> list[str]:
        lines = []
        for op in block.ops[:-1]:
            lines += self._scalar_if(op) if op.name == "scf.if" else self._scalar(op)
        return lines

    def _combined_blocks(self, blocks: Sequence[Block]) -> tuple[list[str], list[str]]:
        """Return lines of blocks that branch to one another, and the names of what they return."""
        assert self._ahead is not None
        labels = {block.label: self.name("block") for block in blocks}
        behind = self.name("behind")
        returned = next(block.ops[-1] for block in blocks if "targets" not in block.ops[-1].attributes)
        results = [self.name("y") for _ in returned.operands]
        for value, name in zip(returned.operands, results, strict=True):
            self._ahead.append(f"{self.element_type(value)} {name};")
        for block in blocks[1:]:
            for argument in block.arguments:
                self.declare(argument)
        lines = []
        for block in blocks:
            end = block.ops[-1]
            lines += [f"{labels[block.label]}:;", *self._scalars(block)]
            if "targets" in end.attributes:
                lines += self._branch(end, blocks, labels.__getitem__)
            else:
                pairs = zip(results, end.operands, strict=True)
                lines += [*(f"{name} = {self.number(value)};" for name, value in pairs), f"goto {behind};"]
        return [*self._ahead, *lines, f"{behind}:;"], results

    def _scalar_if(self, op: Op) -> list[str]:
        lines = [line for result in op.results for line in self.declare(result)]
        for number, region in enumerate(op.regions):
            inner, results = self.combined(region, [])
            head = f"if ({self.number(op.operands[0])}) {{" if number == 0 else "} else {"
            sets = [f"{self.number(each)} = {text};" for each, text in zip(op.results, results, strict=True)]
            lines += [head, *inner, *sets]
        return [*lines, "}"]

    def assembly(self, op: Op, arguments: list[str]) -> tuple[list[str], list[str]]:
        return translated(self, op, arguments)


def _made_in(plan: Plan) -> set[Value]:
    """Return the blocks that a turn of a loop makes and hands on once: it makes them where the next reads."""
    assert plan.end is not None
    made: set[Value] = set()
    for step in plan.steps:
        if isinstance(step, Nest):
            made |= step.kept | {op.result for op in step.ops if op.name == "tt.reduce"}
        elif isinstance(step, Alone):
            made.update(step.op.results)
    return {value for value in made if plan.end.operands.count(value) == 1}


def _results_in(block: Block) -> Iterator[Value]:
    for op in block.ops:
        for each in op.walk():
            yield from each.results


def _label(label: str) -> str:
    return f"block_{label.strip('^')}"


_AXES = {"x": 0, "y": 1, "z": 2}

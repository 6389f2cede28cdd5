"""Inline assembly: PTX on the elements of blocks, as C++. Which instructions there are: `instructions.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.emission.instructions import (
    TYPES,
    Operands,
    UnknownInstructionError,
    expression,
    width,
)
from torch_loom.kernels.ttir.model import Op, Scalar, Tensor, Value, element_of

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

_NOTHING = ("membar", "fence", "griddepcontrol", "nanosleep", "prefetch", "prefetchu", "discard", "bar")
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.+)", re.DOTALL)
_MANY = re.compile(r"(.*)<(\d+)>")
_ADDRESS = re.compile(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+)\s*)?\]")


def group_size(op: Op) -> int:
    """Return how many elements one run of the instructions is for."""
    return int(op.attributes.get("packed_element", 1))


def translated(function: FunctionText, op: Op, arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return lines for the instructions of an op on one element of each operand, and its results.

    Raises:
        UnsupportedKernelError: an instruction is not known.
    """
    given = [
        [f"{function.element_type(value)}({text})"]
        for value, text in zip(op.operands, arguments, strict=True)
    ]
    lines, results = _Assembly(function, op).run(given)
    return lines, [group[0] for group in results]


def in_groups(function: FunctionText, op: Op, places: list[str], outs: list[str]) -> list[str]:
    """Return a loop over groups of neighbours, which instructions have in the same registers.

    Args:
        function: where it stands.
        op: the op.
        places: C++ of the memory of each operand.
        outs: C++ of the memory of each result.

    Raises:
        UnsupportedKernelError: an instruction is not known.
    """
    size = group_size(op)
    shape = (*op.operands, *op.results)[0].type
    assert isinstance(shape, Tensor)
    k = function.name("k")
    lines, results = _Assembly(function, op).run(
        [[f"{place}[{k} + {one}]" for one in range(size)] for place in places]
    )
    writes = [
        f"{out}[{k} + {one}] = {text};"
        for out, group in zip(outs, results, strict=True)
        for one, text in enumerate(group)
    ]
    head = f"for (int64_t {k} = 0; {k} < {shape.size}; {k} += {size}) {{"
    return [head, *lines, *writes, "}"]


class _Assembly:
    """The registers of one op, and its instructions."""

    def __init__(self, function: FunctionText, op: Op) -> None:
        self.function = function
        self.op = op
        self.lines: list[str] = []
        # C++ and its type, by the register's name.
        self.registers: dict[str, tuple[str, str]] = {}
        function.kernel.has_assembly = True

    def run(self, given: list[list[str]]) -> tuple[list[str], list[list[str]]]:
        attributes = self.op.attributes
        strings = attributes.get("strings") or [""]
        text = str(attributes.get("asm_string", strings[0]))
        constraints = str(attributes.get("constraints", "")).replace(" ", "").split(",")
        outputs = [one.strip("=&") for one in constraints if one.startswith("=")]
        inputs = [one for one in constraints if one and not one.startswith(("=", "~"))]
        results = []
        at = 0
        for value in self.op.results:
            group, count = self._group(value, outputs[at : at + 1])
            names = []
            for number in range(count):
                names.append(self._declared(f"${at + number}", self._kind(outputs, at + number)))
            results.append([text for name in names for text in self._elements(value, name, group)])
            at += count
        for value, elements_ in zip(self.op.operands, given, strict=True):
            first = at - len(outputs)
            group, count = self._group(value, inputs[first : first + 1])
            kind = self._kind(inputs, first)
            for number in range(count):
                self._fill(f"${at + number}", kind, elements_[number * group : (number + 1) * group])
            at += count
        for statement in _statements(text):
            self._statement(statement)
        return self.lines, results

    def _group(self, value: Value, constraint: list[str]) -> tuple[int, int]:
        """Return how many elements share a register, and in how many registers a group of elements is."""
        size = group_size(self.op)
        together = min(max(32 // _bits(value), 1), size)
        return together, -(-size // together)

    def _kind(self, constraints: list[str], number: int) -> str:
        if number >= len(constraints):
            raise elements.refused(self.op, "inline assembly with fewer constraints than registers")
        names = {"f": "float", "d": "double", "h": "uint16_t", "l": "uint64_t", "c": "uint16_t"}
        return names.get(constraints[number], "uint32_t")

    def _declared(self, register: str, kind: str) -> str:
        name = self.function.name("r")
        self.registers[register] = (name, kind)
        self.lines.append(f"{kind} {name}{{}};")
        return name

    def _elements(self, value: Value, register: str, count: int) -> list[str]:
        kind = self.function.element_type(value)
        if count == 1:
            return [f"from_register<{kind}>({register})"]
        return [f"part_of<{kind}>({register}, {number})" for number in range(count)]

    def _fill(self, register: str, kind: str, texts: list[str]) -> None:
        name = self._declared(register, kind)
        if len(texts) == 1:
            self.lines.append(f"{name} = to_register<{kind}>({texts[0]});")
            return
        self.lines += [f"set_part({name}, {number}, {text});" for number, text in enumerate(texts)]

    # ----------------------------------------------------------------- statements

    def _statement(self, statement: str) -> None:
        found = _REGISTERS.match(statement)
        if found:
            if found[1] not in TYPES:
                raise elements.refused(self.op, f"inline assembly with registers .{found[1]}")
            for name in (one.strip() for one in found[2].split(",")):
                many = _MANY.fullmatch(name)
                names = [f"{many[1]}{number}" for number in range(int(many[2]))] if many else [name]
                for one in names:
                    self._declared(one, TYPES[found[1]])
            return
        guard = ""
        if statement.startswith("@"):
            predicate, _, statement = statement.partition(" ")
            register = self.registers.get(predicate.lstrip("@!"))
            if register is None:
                raise self._unknown(predicate)
            guard = f"if ({'!' if '!' in predicate else ''}{register[0]}) "
        instruction, _, rest = statement.strip().partition(" ")
        operands = [one.strip() for one in re.split(r",(?![^{]*\})", rest)]
        if instruction.partition(".")[0] in _NOTHING:
            return
        name, *words = instruction.split(".")
        try:
            if name in ("ld", "st") and len(operands) == 2:
                lines = self._access(name, words, operands)
            elif name == "mov" and "{" in rest:
                lines = self._moved(words[-1], *operands)
            else:
                text = expression(name, words, Operands(self.registers, operands[1:]))
                lines = [self._set(operands[0], text)]
        except (UnknownInstructionError, IndexError, TypeError):
            raise self._unknown(instruction) from None
        self.lines += [f"{guard}{{ {' '.join(lines)} }}" if guard else " ".join(lines)]

    def _unknown(self, instruction: str) -> Exception:
        return elements.refused(self.op, f"the instruction {instruction!r} of inline assembly")

    def _set(self, register: str, text: str) -> str:
        if register == "_":
            return ""
        if register not in self.registers:
            raise UnknownInstructionError
        name, kind = self.registers[register]
        return f"{name} = to_register<{kind}>({text});"

    def _moved(self, word: str, to: str, source: str) -> list[str]:
        """Return lines that put a register together, or take it apart."""
        is_apart = to.startswith("{")
        names = [one.strip() for one in (to if is_apart else source).strip("{}").split(",")]
        bits = width(word) // len(names)
        part = f"uint{bits}_t"
        if is_apart:
            whole = Operands(self.registers, [source]).read(0, word)
            return [self._set(one, f"part_of<{part}>({whole}, {number})") for number, one in enumerate(names)]
        name = self.function.name("r")
        parts = Operands(self.registers, names)
        sets = [f"set_part({name}, {n}, {parts.read(n, f'b{bits}')});" for n in range(len(names))]
        return [f"{TYPES[word]} {name}{{}};", *sets, self._set(to, name)]

    def _access(self, name: str, words: list[str], operands: list[str]) -> list[str]:
        """Return lines of a load or store, which is checked as those of Triton's are."""
        if "shared" in words or "local" in words or words[-1] not in TYPES:
            raise UnknownInstructionError
        kind = TYPES[words[-1]]
        address, value = operands[::-1] if name == "ld" else operands
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise UnknownInstructionError
        at = f"int64_t({Operands(self.registers, [found[1]]).read(0, 'u64')}) + {found[2] or 0}"
        site = self.function.kernel.site_of_assembly(self.op, is_write=name == "st")
        lines = []
        values = [one.strip() for one in value.strip("{}").split(",")]
        for number, one in enumerate(values):
            place = f"program, {site}, {at} + {number * width(words[-1]) // 8}"
            if name == "ld":
                access = ", kVolatileRead" if {"volatile", "acquire", "relaxed"} & set(words) else ""
                lines.append(self._set(one, f"read_checked<{kind}{access}>({place})"))
            else:
                text = Operands(self.registers, [one]).read(0, words[-1])
                lines.append(f"write_checked<{kind}>({place}, {text});")
        return lines


def _bits(value: Value) -> int:
    element = element_of(value.type)
    return max(element.bits, 8) if isinstance(element, Scalar) else 64


def _statements(text: str) -> list[str]:
    """Return the statements of a text; braces around statements are scopes, others belong to operands."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found = []
    for part in text.split(";"):
        statement = " ".join(part.split())
        while statement.startswith(("{", "}")):
            statement = statement[1:].strip()
        if statement:
            found.append(statement)
    return found

"""Inline assembly: PTX on the elements of blocks, as C++. Which instructions there are: ``kernels/ptx``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.ptx.instructions import TYPES, UnknownInstructionError, width
from torch_loom.kernels.ptx.statements import CACHES, MEMORY, ORDERS, Statements, registers_of
from torch_loom.kernels.ttir.model import Op, Scalar, Tensor, Value, element_of

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

# By a constraint's letter, what a register is.
_KINDS = {
    "r": "uint32_t",
    "n": "uint32_t",
    "h": "uint16_t",
    "c": "uint16_t",
    "l": "uint64_t",
    "f": "float",
    "d": "double",
}
_ADDRESS = re.compile(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+)\s*)?\]")
_SPECIAL = {
    "%globaltimer": "nanoseconds()",
    "%globaltimer_lo": "uint32_t(nanoseconds())",
    "%clock64": "nanoseconds()",
    "%clock": "uint32_t(nanoseconds())",
    "%smid": "0u",
    "%nsmid": "1u",
    **{f"%ctaid.{axis}": f"uint32_t(program.id[{number}])" for number, axis in enumerate("xyz")},
    **{f"%nctaid.{axis}": f"uint32_t(program.count[{number}])" for number, axis in enumerate("xyz")},
}


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
        [[f"{place}[{k} + {each}]" for each in range(size)] for place in places]
    )
    writes = [
        f"{out}[{k} + {each}] = {text};"
        for out, group in zip(outs, results, strict=True)
        for each, text in enumerate(group)
    ]
    head = f"for (int64_t {k} = 0; {k} < {shape.size}; {k} += {size}) {{"
    return [head, *lines, *writes, "}"]


class _Assembly(Statements):
    """The registers of one op, and its instructions."""

    def __init__(self, function: FunctionText, op: Op) -> None:
        super().__init__(_SPECIAL, lambda: function.name("r"))
        self.function = function
        self.op = op
        self.lines: list[str] = []
        function.kernel.has_assembly = True

    def run(self, given: list[list[str]]) -> tuple[list[str], list[list[str]]]:
        attributes = self.op.attributes
        strings = attributes.get("strings") or [""]
        text = str(attributes.get("asm_string", strings[0]))
        constraints = str(attributes.get("constraints", "")).replace(" ", "").split(",")
        outputs = [constraint.strip("=&") for constraint in constraints if constraint.startswith("=")]
        inputs = [
            constraint for constraint in constraints if constraint and not constraint.startswith(("=", "~"))
        ]
        of_outputs = {str(number): each for number, each in enumerate(outputs)}
        kinds = [of_outputs.get(each, each) for each in inputs]
        results = []
        at = 0
        for value in self.op.results:
            group, count = self._group(value)
            names = []
            for number in range(count):
                names.append(self._filled(f"${at + number}", self._kind(outputs, at + number), []))
            results.append([text for name in names for text in self._elements(value, name, group)])
            at += count
        for value, elements_ in zip(self.op.operands, given, strict=True):
            group, count = self._group(value)
            for number in range(count):
                register, texts = f"${at + number}", elements_[number * group : (number + 1) * group]
                kind = self._kind(kinds, at + number - len(outputs))
                tied = self.variable(f"${inputs[at + number - len(outputs)]}")
                if tied is None:
                    self._filled(register, kind, texts)
                else:  # in the register of that output
                    self.add(register, tied)
                    self.lines += self._fill(tied, kind, texts)
            at += count
        try:
            self.lines += self.lines_of(text)
        except UnknownInstructionError as error:
            raise elements.refused(self.op, f"the instruction {error} of inline assembly") from None
        return self.lines, results

    def _group(self, value: Value) -> tuple[int, int]:
        """Return how many elements share a register, and in how many registers a group of elements is."""
        size = group_size(self.op)
        together = min(max(32 // _bits(value), 1), size)
        return together, -(-size // together)

    def _kind(self, constraints: list[str], number: int) -> str:
        if number >= len(constraints):
            raise elements.refused(self.op, "inline assembly with fewer constraints than registers")
        if constraints[number] not in _KINDS:
            raise elements.refused(self.op, f"the constraint {constraints[number]!r} of inline assembly")
        return _KINDS[constraints[number]]

    def _elements(self, value: Value, register: str, count: int) -> list[str]:
        kind = self.function.element_type(value)
        if count == 1:
            return [f"from_register<{kind}>({register})"]
        return [f"part_of<{kind}>({register}, {number})" for number in range(count)]

    def _filled(self, register: str, kind: str, texts: list[str]) -> str:
        """Declare a variable for a register, and return it, with elements in its bits."""
        self.lines.append(self.declare(register, kind))
        name = str(self.variable(register))
        self.lines += self._fill(name, kind, texts)
        return name

    def _fill(self, name: str, kind: str, texts: list[str]) -> list[str]:
        if len(texts) == 1:
            return [f"{name} = to_register<{kind}>({texts[0]});"]
        return [f"set_part({name}, {number}, {text});" for number, text in enumerate(texts)]

    def own(self, name: str, words: list[str], operands: list[str]) -> list[str] | None:
        """Return lines of a load or store, which is checked as those of Triton's are, or of a barrier."""
        if name == "bar":
            return []
        if name not in ("ld", "st") or len(operands) != 2:
            return None
        *how, word = words
        if word not in MEMORY or set(how) - (ORDERS | CACHES | {"global", "v2", "v4"}):
            raise UnknownInstructionError
        address, value = operands[::-1] if name == "ld" else operands
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise UnknownInstructionError
        at = f"int64_t({self.read(found[1], 'u64')}) + {found[2] or 0}"
        site = self.function.kernel.site_of_assembly(self.op, is_write=name == "st")
        access = ", kVolatileRead" if {"volatile", "acquire", "relaxed"} & set(how) else ""
        loads, lines = [], []
        for number, each in enumerate(registers_of(value, how)):
            place = f"program, {site}, {at} + {number * width(word) // 8}"
            if name == "ld":
                loads.append(f"const auto ptx_read{number} = read_checked<{TYPES[word]}{access}>({place});")
                lines.append(self.write(each, f"ptx_read{number}"))
            else:
                lines.append(f"write_checked<{TYPES[word]}>({place}, {self.read(each, word)});")
        # All is read before a register is written, which may be part of the address.
        return [f"{{ {' '.join([*loads, *lines])} }}"]


def _bits(value: Value) -> int:
    element = element_of(value.type)
    return max(element.bits, 8) if isinstance(element, Scalar) else 64

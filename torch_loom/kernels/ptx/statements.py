"""Statements of PTX: registers and their scopes, guards, and what each instruction reads and writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from torch_loom.kernels.ptx.instructions import TYPES, UnknownInstructionError, constant, expression, width

# What orders or warns, and computes nothing.
_NOTHING = (
    *("membar", "fence", "griddepcontrol", "nanosleep", "prefetch", "prefetchu", "discard"),
    "applypriority",
)
# Words of loads and stores: none changes what is read here.
ORDERS = {"weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "gpu", "cta", "cluster", "sys"}
CACHES = {
    *("nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::no_allocate", "L1::evict_last", "L1::evict_first"),
    *("L1::evict_normal", "L1::evict_unchanged", "L2::64B", "L2::128B", "L2::256B"),
}
# Types of memory: of them, atomics and pointers have the width and the sign.
MEMORY = {word for word in TYPES if re.fullmatch(r"[usb]\d+|f32|f64", word)}

# By the C++ type of a register, how wide it is.
_BITS = {kind: width(word) for word, kind in TYPES.items()}
_DECLARED = re.compile(r"\.reg\s*\.(\w+)\s+(.+)", re.DOTALL)
_MANY = re.compile(r"(.*)<(\d+)>")
_GUARD = re.compile(r"@(!?)\s*([%\w$]+)\s+")
_INSTRUCTION = re.compile(r"[\w.:]+")


class Statements:
    """The statements of one inline assembly, as lines of C++.

    Args:
        specials: C++ of registers that are not declared.
        fresh: returns a name for a register.
    """

    def __init__(self, specials: Mapping[str, str], fresh: Callable[[], str]) -> None:
        self._specials = specials
        self._fresh = fresh
        # C++ by a register's name, the innermost scope last.
        self._scopes: list[dict[str, str]] = [{}]
        self._predicates: set[str] = set()
        # Of variables that are declared here: how wide they are.
        self._bits: dict[str, int] = {}

    def own(self, name: str, words: list[str], operands: list[str]) -> list[str] | None:
        """Return lines for an instruction that is not the same in all kernels, or nothing if it is."""
        return None

    def add(self, register: str, text: str) -> None:
        """Let a register of the assembly be a variable of C++."""
        self._scopes[-1][register] = text

    def declare(self, register: str, kind: str) -> str:
        """Return the declaration of a variable for a register."""
        name = self._fresh()
        self.add(register, name)
        self._bits[name] = _BITS[kind]
        if kind == TYPES["pred"]:
            self._predicates.add(name)
        return f"{kind} {name}{{}};"

    def lines_of(self, text: str) -> list[str]:
        """Return C++ of all statements.

        Raises:
            UnknownInstructionError: with the text of what has no translation.
        """
        lines = []
        for statement in _split(text):
            if statement == "{":
                self._scopes.append({})
            elif statement != "}":
                try:
                    lines += self._statement(statement)
                except (UnknownInstructionError, IndexError, KeyError, TypeError, ValueError):
                    raise UnknownInstructionError(repr(statement)) from None
            elif len(self._scopes) == 1:
                raise UnknownInstructionError(repr(text))
            else:
                self._scopes.pop()
        if len(self._scopes) != 1:
            raise UnknownInstructionError(repr(text))
        return lines

    def variable(self, text: str) -> str | None:
        """Return C++ of a register, as it is, or nothing if there is none."""
        return next(
            (scope[text] for scope in reversed(self._scopes) if text in scope), self._specials.get(text)
        )

    def is_predicate(self, text: str) -> bool:
        """Whether a register is declared as a predicate."""
        return self.variable(text) in self._predicates

    def read(self, text: str, word: str) -> str:
        """Return C++ of an operand as the type that a word of the instruction names.

        Raises:
            UnknownInstructionError: it is something else than a register or a number.
        """
        if text.startswith("!") and word == "pred":
            return f"!{self.read(text[1:], word)}"
        variable = self.variable(text)
        if variable is None:
            return constant(text, word)
        if variable in self._predicates and word != "pred":
            raise UnknownInstructionError
        bits = self._bits.get(variable, width(word))
        # The lower bits of a wider register are what a byte is in.
        if word != "pred" and (bits < width(word) or (bits > width(word) and width(word) > 16)):
            raise UnknownInstructionError
        return f"::loom::as<{TYPES[word]}>({variable})"

    def write(self, register: str, text: str) -> str:
        """Return C++ that writes a register, whose bits are those of an expression.

        Raises:
            UnknownInstructionError: there is no such register.
        """
        if register == "_":
            return ""
        variable = next((scope[register] for scope in reversed(self._scopes) if register in scope), None)
        if variable is None:
            raise UnknownInstructionError
        return f"::loom::put({variable}, {text});"

    def _statement(self, statement: str) -> list[str]:
        found = _DECLARED.fullmatch(statement)
        if found:
            kind = TYPES[found[1]]
            return [self.declare(each, kind) for name in found[2].split(",") for each in _names(name.strip())]
        guard = _GUARD.match(statement)
        if guard:
            lines = self._statement(statement[guard.end() :])
            return [f"if ({guard[1]}{self.read(guard[2], 'pred')}) {{ {' '.join(lines)} }}"]
        instruction = _INSTRUCTION.match(statement)
        if instruction is None:
            raise UnknownInstructionError
        name, *words = instruction[0].split(".")
        operands = list_of(statement[instruction.end() :])
        if name in _NOTHING:
            return []
        lines_of_own = self.own(name, words, operands)
        if lines_of_own is not None:
            return lines_of_own
        to, *sources = operands
        if name == "mov" and "{" in statement:
            return self._moved(words, to, *sources)
        return [self.write(to, expression(name, words, sources, self.read))]

    def _moved(self, words: Sequence[str], to: str, source: str) -> list[str]:
        """Return a line that puts a register together, or takes it apart."""
        (word,) = words
        names = list_of((to if to.startswith("{") else source)[1:-1])
        part = f"b{width(word) // len(names)}"
        if word[0] != "b" or width(part) * len(names) != width(word):
            raise UnknownInstructionError
        if to.startswith("{"):
            # All is read before a part is written, which may be what it comes from.
            begin = f"const auto ptx_whole = {self.read(source, word)};"
            parts = (f"::loom::part_of<{TYPES[part]}>(ptx_whole, {number})" for number in range(len(names)))
            return [f"{{ {begin} {' '.join(map(self.write, names, parts))} }}"]
        sets = (f"::loom::set_part(ptx_whole, {n}, {self.read(each, part)});" for n, each in enumerate(names))
        return [f"{{ {TYPES[word]} ptx_whole{{}}; {' '.join(sets)} {self.write(to, 'ptx_whole')} }}"]


def registers_of(text: str, words: Sequence[str]) -> list[str]:
    """Return the registers of a load or store.

    Raises:
        UnknownInstructionError: they are not as many as its words say.
    """
    names = list_of(text.strip("{}"))
    if len(names) != (2 if "v2" in words else 4 if "v4" in words else 1):
        raise UnknownInstructionError
    return names


def list_of(text: str) -> list[str]:
    """Return what stands between the commas of a text that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts] if text.strip() else []


def _names(text: str) -> list[str]:
    many = _MANY.fullmatch(text)
    return [f"{many[1]}{number}" for number in range(int(many[2]))] if many else [text]


def _split(text: str) -> list[str]:
    """Return the statements of a text; braces around statements are scopes, others belong to operands."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    found = []
    for part in text.split(";"):
        statement = " ".join(part.split())
        while statement.startswith(("{", "}")):
            found.append(statement[0])
            statement = statement[1:].strip()
        if statement:
            found.append(statement)
    return found

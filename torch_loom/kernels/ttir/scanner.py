"""Walks over the text of Triton's IR: words, numbers, types and attributes."""

from __future__ import annotations

import re
import struct
from typing import Any

from torch_loom.errors import KernelTextError
from torch_loom.kernels.ttir.model import Dense, Descriptor, Pointer, Scalar, Tensor, Type

# A text that nests deeper than any kernel is damaged, and would exhaust Python's stack.
MOST_DEPTH = 100

_SPACE = re.compile(r"[ \t\r]*(?://[^\n]*)?")
_LINES = re.compile(r"(?:\s|//[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_][\w.$]*")
_VALUE = re.compile(r"%([\w.$-]+)(?:#(\d+))?")
_NUMBER = re.compile(r"-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_SCALAR = re.compile(r"(?:index|[iu]i?\d+|b?f\d+(?:E\d+M\d+\w*)?)\b")
_SYMBOL = re.compile(r'@(?:([\w.$-]+)|"([^"]*)")')
_DIMENSION = re.compile(r"(\d+)x")
_SUFFIX = {"f16": "e", "f32": "f", "f64": "d"}


class Scanner:
    """A place in a text. What `take…` looks for may be missing; where `need…` finds it missing, it raises."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._depth = 0

    def error(self, what: str) -> KernelTextError:
        """Return the error for this place."""
        line = self.text.count("\n", 0, self.at) + 1
        here = self.text.splitlines()[line - 1].strip() if self.text else ""
        return KernelTextError(f"Triton's IR cannot be read, line {line}: {what} in {here[:200]!r}")

    def deeper(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise self.error(f"more than {MOST_DEPTH} levels")

    def less_deep(self) -> None:
        self._depth -= 1

    def space(self) -> None:
        """Skip blanks of this line."""
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def lines(self) -> None:
        """Skip blanks and ends of lines."""
        match = _LINES.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def at_line_end(self) -> bool:
        self.space()
        return self.at >= len(self.text) or self.text[self.at] == "\n"

    def sees(self, what: str) -> bool:
        self.space()
        return self.text.startswith(what, self.at)

    def take(self, what: str) -> bool:
        if not self.sees(what):
            return False
        self.at += len(what)
        return True

    def need(self, what: str) -> None:
        if not self.take(what):
            raise self.error(f"{what!r} is missing")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.space()
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def take_word(self) -> str | None:
        match = self._match(_WORD)
        return None if match is None else match.group()

    def sees_word(self, word: str) -> bool:
        self.space()
        match = _WORD.match(self.text, self.at)
        return match is not None and match.group() == word

    def take_value(self) -> tuple[str, int] | None:
        """Return the name of a value and which of an op's results it is."""
        match = self._match(_VALUE)
        return None if match is None else (match.group(1), int(match.group(2) or 0))

    def take_symbol(self) -> str | None:
        match = self._match(_SYMBOL)
        return None if match is None else match.group(1) or match.group(2)

    def take_string(self) -> str | None:
        match = self._match(_STRING)
        return None if match is None else _ESCAPE.sub(_unescaped, match.group(1))

    def take_number(self) -> str | None:
        match = self._match(_NUMBER)
        return None if match is None else match.group()

    def skip_brackets(self, opening: str, closing: str) -> str:
        """Skip a pair of brackets and what is in it, which may contain strings; return what was in it."""
        self.need(opening)
        begin, depth = self.at, 1
        while depth:
            if self.at >= len(self.text):
                raise self.error(f"{closing!r} is missing")
            character = self.text[self.at]
            if character == '"':
                if self.take_string() is None:
                    raise self.error("a string does not end")
                continue
            if character == "-" and self.text.startswith("->", self.at):
                self.at += 2
                continue
            depth += (character == opening) - (character == closing)
            self.at += 1
        return self.text[begin : self.at - 1]

    def skip_to_close(self) -> None:
        """Skip types up to the closing parenthesis of what was opened before."""
        if self.take(":"):
            self.need_type()
            while self.take(","):
                self.need_type()
        self.need(")")

    # ------------------------------------------------------------------ types

    def need_type(self) -> Type:
        """Read a type.

        Raises:
            KernelTextError: there is none, or one that kernels of Triton do not have before they are lowered.
        """
        self.deeper()
        try:
            return self._type()
        finally:
            self.less_deep()

    def _type(self) -> Type:
        if self.take("tensor<"):
            return self._tensor()
        if self.take("!tt.ptr<"):
            pointee = self.need_type()
            if isinstance(pointee, Descriptor):
                raise self.error("an address of a descriptor")
            if self.take(","):
                self.take_number()
            self.need(">")
            return Pointer(pointee)
        if self.take("!tt.tensordesc<"):
            if self.take("tensor<"):
                block = self._tensor()
            else:
                shape, element = self._shape_and_element()
                block = Tensor(shape, element)
            while self.take(","):
                self.take_word() or self.skip_brackets("<", ">")
                if self.take("="):
                    self.attribute()
            self.need(">")
            return Descriptor(block)
        match = self._match(_SCALAR)
        if match is not None:
            name = match.group()
            return Scalar(name.removeprefix("u") if name.startswith("ui") else name)
        if self.take("!"):
            return Scalar(f"!{self.take_word()}")
        raise self.error("a type is missing")

    def _shape_and_element(self) -> tuple[tuple[int, ...], Scalar | Pointer]:
        shape = []
        while (match := self._match(_DIMENSION)) is not None:
            shape.append(int(match.group(1)))
        element = self.need_type()
        if not isinstance(element, Scalar | Pointer):
            raise self.error("a tensor of what is no number and no address")
        return tuple(shape), element

    def _tensor(self) -> Tensor:
        shape, element = self._shape_and_element()
        if self.take(","):
            raise self.error("a layout, which blocks have after Triton's own lowering only,")
        self.need(">")
        return Tensor(shape, element)

    def types(self) -> list[Type]:
        """Read ``()``, ``(T, …)`` or a type without parentheses."""
        if not self.take("("):
            return [self.need_type()]
        found: list[Type] = []
        while not self.take(")"):
            found.append(self.need_type())
            if self.sees("{"):
                self.dictionary()
            self.take(",")
        return found

    # ------------------------------------------------------------- attributes

    def dictionary(self) -> dict[str, Any]:
        """Read ``{name = value, name, …}``."""
        self.need("{")
        found: dict[str, Any] = {}
        while not self.take("}"):
            self.lines()
            name = self.take_word() or self.take_string()
            if name is None:
                raise self.error("the name of an attribute is missing")
            found[name] = self.attribute() if self.take("=") else True
            self.take(",")
            self.lines()
        return found

    def attribute(self) -> Any:
        """Read the value of an attribute: numbers, booleans, strings, lists; other values as their text."""
        self.deeper()
        try:
            return self._attribute()
        finally:
            self.less_deep()

    def _attribute(self) -> Any:
        if self.sees('"'):
            value: Any = self.take_string()
            if self.take(":"):
                self.need_type()
            return value
        if self.sees("{"):
            return self.dictionary()
        if self.take("["):
            items = []
            while not self.take("]"):
                items.append(self.attribute())
                self.take(",")
            return items
        if self.take("dense<"):
            return self._dense()
        if self.take("array<"):
            self.need_type()
            items = []
            if self.take(":"):
                items = [self.attribute()]
                while self.take(","):
                    items.append(self.attribute())
            self.need(">")
            return items
        if (number := self.take_number()) is not None:
            kind = self.need_type() if self.take(":") else None
            return number_of(number, kind)
        if (symbol := self.take_symbol()) is not None:
            return symbol
        if self.sees("#"):
            self.at += 1
            name = self.take_word() or ""
            return f"#{name}<{self.skip_brackets('<', '>')}>" if self.sees("<") else f"#{name}"
        if self.sees("!") or self.sees("tensor<"):
            return self.need_type()
        word = self.take_word()
        if word is None:
            raise self.error("an attribute has no value")
        if word in ("true", "false"):
            return word == "true"
        if self.sees("<"):
            self.skip_brackets("<", ">")
        return word

    def _dense(self) -> Dense:
        values: list[Any] = []
        if self.sees('"'):
            text = self.take_string() or ""
            self.need(">")
            self.need(":")
            kind = self.need_type()
            return Dense(_packed(text, kind, self))
        while not self.take(">"):
            if self.take("[") or self.take("]") or self.take(","):
                continue
            number = self.take_number()
            values.append(number if number is not None else self.take_word())
            if values[-1] is None:
                raise self.error("a number is missing")
        self.need(":")
        kind = self.need_type()
        element = kind.element if isinstance(kind, Tensor) else kind
        return Dense(tuple(number_of(value, element) for value in values))


def number_of(text: str, kind: Type | None) -> Any:
    """Return the number that a text means in a type: of a float, hexadecimal digits are its bits."""
    if text in ("true", "false"):
        return text == "true"
    if isinstance(kind, Scalar) and kind.is_float:
        if not text.lower().startswith(("0x", "-0x")):
            return float(text)
        bits = int(text, 16)
        if kind.name in _SUFFIX:
            return struct.unpack(f"<{_SUFFIX[kind.name]}", bits.to_bytes(kind.bits // 8, "little"))[0]
        if kind.name == "bf16":
            return struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0]
        return Bits(bits)
    if text.lower().startswith(("0x", "-0x")):
        return int(text, 16)
    return int(text) if text.lstrip("-").isdigit() else float(text)


class Bits(int):
    """A constant of a float8 that is given by its bits."""


def _packed(text: str, kind: Type, scanner: Scanner) -> tuple[Any, ...]:
    element = kind.element if isinstance(kind, Tensor) else kind
    if not isinstance(element, Scalar) or not text.startswith("0x"):
        raise scanner.error("a packed constant that is not read")
    data = bytes.fromhex(text[2:])
    width = max(element.bits // 8, 1)
    items = [data[at : at + width] for at in range(0, len(data), width)]
    return tuple(number_of(f"0x{int.from_bytes(item, 'little'):x}", element) for item in items)


def _unescaped(match: re.Match[str]) -> str:
    found = match.group(1)
    if len(found) == 2:
        return chr(int(found, 16))
    return {"n": "\n", "t": "\t"}.get(found, found)

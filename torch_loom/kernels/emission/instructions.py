"""Instructions of PTX that compute, each as an expression of C++.

What they do is in NVIDIA's "Parallel Thread Execution ISA", version 8.7, chapter 9.7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPES = {
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "f16": "f16",
    "bf16": "bf16",
    "tf32": "float",
    "pred": "bool",
    "f16x2": "uint32_t",
    "bf16x2": "uint32_t",
    "f32x2": "uint64_t",
    "e4m3x2": "uint16_t",
    "e5m2x2": "uint16_t",
    "e2m1x2": "uint8_t",
    "ue8m0x2": "uint16_t",
    "e2m1x4": "uint16_t",
    "e4m3x4": "uint32_t",
    "e5m2x4": "uint32_t",
}
# Two numbers in a register, the first one in its lower half.
_PAIRS = {
    "f16x2": "f16",
    "bf16x2": "bf16",
    "f32x2": "float",
    "e4m3x2": "f8E4M3FN",
    "e5m2x2": "f8E5M2",
    "e2m1x2": "e2m1",
    "ue8m0x2": "ue8m0",
}
# Several numbers that are rounded by chance, in one register.
_BY_CHANCE = {
    "f16x2": ("f16", 2),
    "bf16x2": ("bf16", 2),
    "e2m1x4": ("e2m1", 4),
    "e4m3x4": ("f8E4M3FN", 4),
    "e5m2x4": ("f8E5M2", 4),
}
_WIDER = {"uint16_t": "uint32_t", "int16_t": "int32_t", "uint32_t": "uint64_t", "int32_t": "int64_t"}
# {0} and so on are the operands, {T} is the type. Of floats, halves and pairs of them as of whole numbers.
_OPS = {
    "mov": "{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "mul.lo": "{0} * {1}",
    "mad.lo": "{0} * {1} + {2}",
    "div": "{0} / {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "neg": "-{0}",
    "shl": "shifted_left<{T}>({0}, {1})",
    "shr": "shifted_right<{T}>({0}, {1})",
    "popc": "__builtin_popcountll({0})",
    "selp": "{2} ? {0} : {1}",
    "slct": "{2} >= 0 ? {0} : {1}",
    "mul.hi": "high_half({0}, {1})",
    "mad.hi": "high_half({0}, {1}) + {2}",
    "mul.wide": "{W}({0}) * {W}({1})",
    "mad.wide": "{W}({0}) * {W}({1}) + {W}({2})",
    "mul24.lo": "low_24({0}) * low_24({1})",
    "mad24.lo": "low_24({0}) * low_24({1}) + {2}",
    "sad": "({0} < {1} ? {1} - {0} : {0} - {1}) + {2}",
    "rem": "remainder<{T}>({0}, {1})",
    "abs": "{0} < 0 ? -{0} : {0}",
    "min": "{1} < {0} ? {1} : {0}",
    "max": "{1} > {0} ? {1} : {0}",
    "clz": "leading_zeros({0})",
    "brev": "reversed_bits({0})",
    "prmt": "permuted_bytes({0}, {1}, {2})",
    "lop3": "logic_of_3({0}, {1}, {2}, {3})",
    "bfe": "bits_extracted<{T}>({0}, {1}, {2})",
    "bfi": "bits_inserted<{T}>({0}, {1}, {2}, {3})",
    "shf.l.wrap": "funnel_left({0}, {1}, {2} & 31)",
    "shf.l.clamp": "funnel_left({0}, {1}, {2} < 32 ? {2} : 32)",
    "shf.r.wrap": "funnel_right({0}, {1}, {2} & 31)",
    "shf.r.clamp": "funnel_right({0}, {1}, {2} < 32 ? {2} : 32)",
    "dp4a": "product_of_bytes<{T}>({0}, {1}, {2})",
}
_FLOAT_OPS = {
    "fma": "fma({F}({0}), {F}({1}), {F}({2}))",
    "mad": "fma({F}({0}), {F}({1}), {F}({2}))",
    "abs": "fabs({F}({0}))",
    "min": "min_number<{F}>({0}, {1})",
    "max": "max_number<{F}>({0}, {1})",
    "min.NaN": "min_or_nan<{F}>({0}, {1})",
    "max.NaN": "max_or_nan<{F}>({0}, {1})",
    "min.NaN.xorsign.abs": "with_signs(min_or_nan(fabs({F}({0})), fabs({F}({1}))), {F}({0}), {F}({1}))",
    "max.NaN.xorsign.abs": "with_signs(max_or_nan(fabs({F}({0})), fabs({F}({1}))), {F}({0}), {F}({1}))",
    "min.xorsign.abs": "with_signs(min_number(fabs({F}({0})), fabs({F}({1}))), {F}({0}), {F}({1}))",
    "max.xorsign.abs": "with_signs(max_number(fabs({F}({0})), fabs({F}({1}))), {F}({0}), {F}({1}))",
    "copysign": "copysign({F}({1}), {F}({0}))",
    "ex2": "exp2({F}({0}))",
    "lg2": "log2({F}({0}))",
    "rcp": "1 / {F}({0})",
    "sqrt": "sqrt({F}({0}))",
    "rsqrt": "rsqrt({F}({0}))",
    "sin": "sin({F}({0}))",
    "cos": "cos({F}({0}))",
    "tanh": "tanh({F}({0}))",
    "mul.rz": "rounded_down<{T}>(double({0}) * double({1}))",
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED_COMPARED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}
_ROUNDED = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
# They do not change what is computed here: results of approximations are exact, subnormal numbers are kept.
_IGNORED = {"ftz", "rn", "approx", "full", "volatile"}
_WHOLE = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uU]?")
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


class UnknownInstructionError(Exception):
    """An instruction that has no translation."""


@dataclass(frozen=True)
class Operands:
    """The operands of an instruction behind its first, which is where the result goes.

    Attributes:
        registers: C++ and its type, by a register's name.
        texts: the operands.
    """

    registers: dict[str, tuple[str, str]]
    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, number: int, word: str) -> str:
        """Return C++ of an operand as the type that a word of the instruction names.

        Raises:
            UnknownInstructionError: it is something else than a register or a number.
        """
        text, kind = self.texts[number], TYPES[word]
        if text.startswith("!"):
            return f"!{Operands(self.registers, [text[1:]]).read(0, word)}"
        if text in self.registers:
            name, register = self.registers[text]
            return name if register == kind else f"from_register<{kind}>({name})"
        if text in _SPECIAL:
            return f"{kind}({_SPECIAL[text]})"
        if text[:2] in ("0f", "0F", "0d", "0D"):
            wide = "float" if text[1] in "fF" else "double"
            return f"{kind}(bits_as<{wide}>(uint{32 if wide == 'float' else 64}_t(0x{text[2:]})))"
        found = _WHOLE.fullmatch(text)
        if found:
            return f"{kind}({found[1]}{int(found[2], 0 if found[2][:2].lower() in ('0x', '0b') else 10)}ull)"
        if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
            return f"{kind}({text})"
        raise UnknownInstructionError


def width(word: str) -> int:
    """Return how many bits a type's register has."""
    found = re.search(r"\d+", TYPES[word])
    return int(found[0]) if found else {"float": 32, "double": 64, "bool": 8}[TYPES[word]]


def expression(name: str, words: list[str], operands: Operands) -> str:
    """Return C++ of what an instruction computes.

    Args:
        name: of the instruction, up to its first point.
        words: between its points.
        operands: all but the first.

    Raises:
        UnknownInstructionError: it is not known with these words.
    """
    kinds = [word for word in words if word in TYPES]
    modifiers = [word for word in words if word not in TYPES and word not in _IGNORED]
    if not kinds:
        raise UnknownInstructionError
    if name == "cvt":
        return _converted(kinds, modifiers, operands)
    if name == "setp" or name == "set":
        return _compared(name, kinds, modifiers, operands)
    kind = kinds[0]
    if kind in _PAIRS:
        element = _PAIRS[kind]
        text = _computed(name, modifiers, element, [f"x{number}" for number in range(len(operands))])
        given = "".join(f", {operands.read(number, kind)}" for number in range(len(operands)))
        names = ", ".join(f"{element} x{number}" for number in range(len(operands)))
        return f"in_pairs<{element}, {TYPES[kind]}>([]({names}) {{ return {text}; }}{given})"
    values = [operands.read(number, _word_of(name, number, kinds)) for number in range(len(operands))]
    return _computed(name, modifiers, TYPES[kind], values)


def _word_of(name: str, number: int, kinds: list[str]) -> str:
    if name == "selp" and number == 2:
        return "pred"
    if name == "slct" and number == 2:
        return kinds[1]
    # Counts and places of bits.
    if number and (name in ("shl", "shr", "bfe") or (name == "bfi" and number > 1)):
        return "u32"
    return kinds[0]


def _computed(name: str, modifiers: list[str], kind: str, values: list[str]) -> str:
    is_float = kind in ("float", "double", *_PAIRS.values())
    is_kept = is_float and "sat" in modifiers
    key = ".".join([name, *(word for word in modifiers if not (is_kept and word == "sat"))])
    text = (_FLOAT_OPS.get(key) if is_float else None) or _OPS.get(key)
    if text is None or (kind == "bool" and key not in ("mov", "and", "or", "xor", "not", "selp")):
        raise UnknownInstructionError
    if kind == "bool" and key == "not":
        text = "!{0}"
    wide = kind if kind == "double" else "float"
    if name == "shr" or name == "shl":
        values = [values[0], f"{kind}({values[1]} < 128 ? {values[1]} : 127)"]
        if name == "shr" and kind.startswith("u"):
            text = "shifted_right_unsigned<{T}>({0}, {1})"
    if name == "div" and not is_float:
        text = "quotient<{T}>({0}, {1})"
    shown = text.format(*values, T=kind, F=wide, W=_WIDER.get(kind, kind))
    if is_kept:
        shown = f"kept_in_unit<{kind}>({shown})"
    return f"{_WIDER[kind] if '{W}' in text else kind}({shown})"


def _compared(name: str, kinds: list[str], modifiers: list[str], operands: Operands) -> str:
    kind = kinds[0] if name == "setp" else kinds[1]
    sign, *more = modifiers
    a, b = operands.read(0, kind), operands.read(1, kind)
    if sign in ("num", "nan"):
        text = f"({a} == {a} && {b} == {b})"
        text = text if sign == "num" else f"!{text}"
    elif sign in _UNORDERED:
        text = f"!({a} {_COMPARED[_UNORDERED[sign]]} {b})"
        text = f"!({a} < {b} || {a} > {b})" if sign == "equ" else text
    else:
        sign = _UNSIGNED_COMPARED.get(sign, sign)
        if sign not in _COMPARED:
            raise UnknownInstructionError
        text = f"({a} {_COMPARED[sign]} {b})"
        if sign == "ne" and kind.startswith(("f", "bf")):
            text = f"({a} < {b} || {a} > {b})"
    if more:
        joined = {"and": "&&", "or": "||", "xor": "!="}.get(more[0])
        if joined is None or len(more) > 1:
            raise UnknownInstructionError
        text = f"({text} {joined} {operands.read(2, 'pred')})"
    if name == "setp":
        return text
    true = "1.0f" if kinds[0] == "f32" else f"{TYPES[kinds[0]]}(-1)"
    return f"({text} ? {true} : {TYPES[kinds[0]]}(0))"


def _converted(kinds: list[str], modifiers: list[str], operands: Operands) -> str:
    """A conversion between two types, or of two numbers to a pair, or of a pair to a wider one."""
    to, source = kinds[0], kinds[-1]
    kind = TYPES[to]
    if "rs" in modifiers:
        return _converted_by_chance(to, source, operands)
    if to in _PAIRS:
        element = _PAIRS[to]
        if not set(modifiers) <= {"rz", "rp", "satfinite"}:
            raise UnknownInstructionError
        if element == "ue8m0" and "rz" in modifiers:
            raise UnknownInstructionError
        down = "true" if "rz" in modifiers else "false"
        if source in _PAIRS:
            return f"pair_converted<{element}, {kind}, {_PAIRS[source]}>({operands.read(0, source)})"
        upper, lower = operands.read(0, source), operands.read(1, source)
        return f"pair_of<{element}, {kind}, {down}>({lower}, {upper})"
    value = operands.read(0, source)
    is_float, was_float = (one[0] in "fbt" and "f" in one for one in (to, source))
    rounding = next((one for one in modifiers if one in _ROUNDED), None)
    rest = set(modifiers) - set(_ROUNDED)
    if to == "tf32":
        return f"tf32({value})"
    if was_float and rounding is not None:
        value = f"{_ROUNDED[rounding]}({'double' if source == 'f64' else 'float'}({value}))"
    if is_float:
        if not rest <= {"rz", "sat"}:
            raise UnknownInstructionError
        text = f"rounded_down<{kind}>(double({value}))" if "rz" in rest else f"{kind}({value})"
        return f"kept_in_unit<{kind}>({text})" if "sat" in rest else text
    if was_float:
        if rest - {"sat"}:
            raise UnknownInstructionError
        return f"whole<{kind}>({value})"
    if rest - {"sat"}:
        raise UnknownInstructionError
    return f"whole_in_range<{kind}>({value})" if "sat" in rest else f"{kind}({value})"


def _converted_by_chance(to: str, source: str, operands: Operands) -> str:
    """A conversion that rounds by bits that it is given: up as often as the number above is nearer."""
    element, count = _BY_CHANCE[to]
    *given, bits = operands.texts
    names = [name.strip() for text in given for name in text.strip("{}").split(",")]
    values = Operands(operands.registers, [*names, bits])
    if len(names) != count or source != "f32":
        raise UnknownInstructionError
    # The last one is in the lowest bits.
    numbers = ", ".join(values.read(number, source) for number in reversed(range(count)))
    return f"by_chance<{element}, {TYPES[to]}, {count}>({{{numbers}}}, {values.read(count, 'u32')})"

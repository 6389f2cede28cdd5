"""Instructions of PTX that compute, each as an expression of C++ whose functions are in ``assembly.h``.

What they do is in NVIDIA's "Parallel Thread Execution ISA", version 8.7, chapter 9.7. An instruction with a
word that would change its result, and has no entry here, is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

TYPES = {
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "f16": "::loom::f16",
    "bf16": "::loom::bf16",
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
_REALS = ("f16", "bf16", "f32", "f64")
# Two numbers in a register, the first one in its lower half. Instructions compute with the first three.
_PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
_SMALL_PAIRS = {
    "e4m3x2": "::loom::f8E4M3FN",
    "e5m2x2": "::loom::f8E5M2",
    "e2m1x2": "::loom::e2m1",
    "ue8m0x2": "::loom::ue8m0",
}
# Several numbers that are rounded by chance, in one register.
_BY_CHANCE = {
    "f16x2": ("::loom::f16", 2),
    "bf16x2": ("::loom::bf16", 2),
    "e2m1x4": ("::loom::e2m1", 4),
    "e4m3x4": ("::loom::f8E4M3FN", 4),
    "e5m2x4": ("::loom::f8E5M2", 4),
}
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
# {0} and so on are the operands, {T} is the type. Sums and products are those of {U}, which has no sign and
# wraps around; {W} is the type of twice the width, and {V} that without a sign.
_OF_WHOLE = {
    "mov": "{0}",
    "add": "{U}({0}) + {U}({1})",
    "sub": "{U}({0}) - {U}({1})",
    "neg": "{U}(0) - {U}({0})",
    "abs": "{0} < 0 ? {U}(0) - {U}({0}) : {U}({0})",
    "mul.lo": "{U}({0}) * {U}({1})",
    "mad.lo": "{U}({0}) * {U}({1}) + {U}({2})",
    "mul.hi": "::loom::high_half({0}, {1})",
    "mad.hi": "{U}(::loom::high_half({0}, {1})) + {U}({2})",
    "mul.wide": "{V}({W}({0})) * {V}({W}({1}))",
    "mad.wide": "{V}({W}({0})) * {V}({W}({1})) + {V}({2})",
    "mul24.lo": "{U}(::loom::low_24({0})) * {U}(::loom::low_24({1}))",
    "mad24.lo": "{U}(::loom::low_24({0})) * {U}(::loom::low_24({1})) + {U}({2})",
    "sad": "({0} < {1} ? {U}({1}) - {U}({0}) : {U}({0}) - {U}({1})) + {U}({2})",
    "div": "::loom::quotient<{T}>({0}, {1})",
    "rem": "::loom::remainder<{T}>({0}, {1})",
    "min": "{1} < {0} ? {1} : {0}",
    "max": "{1} > {0} ? {1} : {0}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    # By the width and more, nothing is left, or the sign.
    "shl": "::loom::shifted_left<{T}>({0}, {T}({1} < 128 ? {1} : 127))",
    "shr": "::loom::shifted_right{N}<{T}>({0}, {T}({1} < 128 ? {1} : 127))",
    "popc": "__builtin_popcountll({0})",
    "clz": "::loom::leading_zeros({0})",
    "brev": "::loom::reversed_bits({0})",
    "selp": "{2} ? {0} : {1}",
    "slct": "{2} >= 0 ? {0} : {1}",
    "prmt": "::loom::permuted_bytes({0}, {1}, {2})",
    "lop3": "::loom::logic_of_3({0}, {1}, {2}, {3})",
    "bfe": "::loom::bits_extracted<{T}>({0}, {1}, {2})",
    "bfi": "::loom::bits_inserted<{T}>({0}, {1}, {2}, {3})",
    "shf.l.wrap": "::loom::funnel_left({0}, {1}, {2} & 31)",
    "shf.l.clamp": "::loom::funnel_left({0}, {1}, {2} < 32 ? {2} : 32)",
    "shf.r.wrap": "::loom::funnel_right({0}, {1}, {2} & 31)",
    "shf.r.clamp": "::loom::funnel_right({0}, {1}, {2} < 32 ? {2} : 32)",
}
_OF_32_BITS = ("prmt", "lop3", "shf", "mul24", "mad24")
# By name: which take types of bits alone, which take them at all, and which words of reals.
_BITS_ALONE = {"popc", "clz", "brev", "prmt", "lop3", "shf", "and", "or", "xor", "not", "shl", "bfi"}
_BITS = {*_BITS_ALONE, "mov", "shr", "selp", "slct"}
_APPROXIMATE = {"div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"}
_ROUNDING = {"add", "sub", "mul", "div", "fma", "mad", "rcp", "sqrt"}
_SATURATING = {"add", "sub", "mul", "fma", "mad"}
# {F} is the type that is computed in.
_SIGNS = (
    "::loom::with_signs<{{F}}>("
    "::loom::{}<{{F}}>(::loom::fabs({{F}}({{0}})), ::loom::fabs({{F}}({{1}}))), {{0}}, {{1}})"
)
_OF_REALS = {
    "mov": "{0}",
    "add": "{F}({0}) + {F}({1})",
    "sub": "{F}({0}) - {F}({1})",
    "mul": "{F}({0}) * {F}({1})",
    "div": "{F}({0}) / {F}({1})",
    # What is rounded by name is no part of a fused multiply-add, which the compiler makes of others.
    "add.rn": "::loom::unfused({F}({0})) + ::loom::unfused({F}({1}))",
    "sub.rn": "::loom::unfused({F}({0})) - ::loom::unfused({F}({1}))",
    "mul.rn": "::loom::unfused({F}({0}) * {F}({1}))",
    "mul.rz": "::loom::toward_zero<{T}>(double({0}) * double({1}))",
    "fma": "::loom::fma({F}({0}), {F}({1}), {F}({2}))",
    "mad": "::loom::fma({F}({0}), {F}({1}), {F}({2}))",
    "neg": "-{F}({0})",
    "abs": "::loom::fabs({F}({0}))",
    "min": "::loom::lesser<{F}>({0}, {1}, ::loom::min_number<{F}>({0}, {1}))",
    "max": "::loom::greater<{F}>({0}, {1}, ::loom::max_number<{F}>({0}, {1}))",
    "min.NaN": "::loom::lesser<{F}>({0}, {1}, ::loom::min_or_nan<{F}>({0}, {1}))",
    "max.NaN": "::loom::greater<{F}>({0}, {1}, ::loom::max_or_nan<{F}>({0}, {1}))",
    "min.xorsign.abs": _SIGNS.format("min_number"),
    "max.xorsign.abs": _SIGNS.format("max_number"),
    "min.NaN.xorsign.abs": _SIGNS.format("min_or_nan"),
    "max.NaN.xorsign.abs": _SIGNS.format("max_or_nan"),
    "copysign": "::loom::copysign({F}({1}), {F}({0}))",
    "selp": "{2} ? {0} : {1}",
    "slct": "{2} >= 0 ? {0} : {1}",
    "ex2": "::loom::power_of_2({F}({0}))",
    "lg2": "::loom::log2({F}({0}))",
    "rcp": "1 / {F}({0})",
    "sqrt": "::loom::sqrt({F}({0}))",
    "rsqrt": "::loom::rsqrt({F}({0}))",
    "sin": "::loom::sin({F}({0}))",
    "cos": "::loom::cos({F}({0}))",
    "tanh": "::loom::tanh({F}({0}))",
}
_OF_PREDICATES = {
    "mov": "{0}",
    "and": "{0} && {1}",
    "or": "{0} || {1}",
    "xor": "{0} != {1}",
    "not": "!{0}",
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED_COMPARED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
# True where one is no number: the opposite is not.
_UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}
_JOINED = {"and": "&&", "or": "||", "xor": "!="}
_ROUNDED = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
# They do not change what is computed here: results of approximations are exact, subnormal numbers are kept.
_IGNORED = ("ftz", "rn", "approx", "full")
_WHOLE = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?")

Read = Callable[[str, str], str]


class UnknownInstructionError(Exception):
    """An instruction that has no translation."""


def width(word: str) -> int:
    """Return how many bits a type's register has."""
    found = re.search(r"\d+", TYPES[word])
    return int(found[0]) if found else {"float": 32, "double": 64, "bool": 8}[TYPES[word]]


def constant(text: str, word: str) -> str:
    """Return C++ of a number that an instruction names, as the type that a word of it names.

    Raises:
        UnknownInstructionError: it is no number, or none of this type.
    """
    kind = TYPES[word]
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text) and 4 * (len(text) - 2) == width(word):
        return f"::loom::as<{kind}>(uint{width(word)}_t(0x{text[2:]}))"
    found = _WHOLE.fullmatch(text)
    if found and (word not in (*_REALS, "tf32") or not found[2].strip("0")):
        prefix = found[2][:2].lower()
        base = {"0x": 16, "0b": 2}.get(prefix, 8 if prefix[0] == "0" else 10)
        return f"{kind}({found[1]}{int(found[2], base)}ull)"
    if word in ("f32", "f64") and re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
        return f"{kind}({text})"
    raise UnknownInstructionError


def expression(name: str, words: Sequence[str], operands: Sequence[str], read: Read) -> str:
    """Return C++ of what an instruction computes.

    Args:
        name: of the instruction, up to its first point.
        words: between its points.
        operands: all but the first.
        read: returns C++ of an operand as the type that a word names.

    Raises:
        UnknownInstructionError: it is not known with these words and operands.
    """
    kinds = [word for word in words if word in TYPES]
    modifiers = [word for word in words if word not in TYPES]
    if name == "cvt" and len(kinds) == 2:
        named = [word for word in modifiers if word not in _IGNORED]
        return _converted(kinds[0], kinds[1], named, operands, read)
    if name == "setp" and len(kinds) == 1:
        return _compared(kinds[0], modifiers, operands, read)
    if name == "set" and len(kinds) == 2 and kinds[0] in ("u32", "s32", "f32"):
        kind = TYPES[kinds[0]]
        true = "1.0f" if kinds[0] == "f32" else f"{kind}(-1)"
        return f"({_compared(kinds[1], modifiers, operands, read)} ? {true} : {kind}(0))"
    if name == "dp4a" and set(kinds) <= {"u32", "s32"} and (len(kinds), len(operands)) == (2, 3):
        parts = ", ".join("uint8_t" if kind == "u32" else "int8_t" for kind in kinds)
        return f"::loom::product_of_bytes<{parts}>({', '.join(read(operand, 'b32') for operand in operands)})"
    if len(kinds) != (2 if name == "slct" else 1):
        raise UnknownInstructionError
    kind = kinds[0]
    if kind in _PAIRS and name not in ("selp", "slct"):
        element, names = TYPES[_PAIRS[kind]], [f"x{number}" for number in range(len(operands))]
        text = _computed(name, modifiers, _PAIRS[kind], names)
        given = "".join(f", {read(operand, kind)}" for operand in operands)
        parameters = ", ".join(f"{element} {each}" for each in names)
        return f"::loom::in_pairs<{element}, {TYPES[kind]}>([]({parameters}) {{ return {text}; }}{given})"
    if kind in (*_PAIRS, *_SMALL_PAIRS, *_BY_CHANCE, "tf32"):
        raise UnknownInstructionError
    values = [read(each, _word_of(name, number, words, kinds)) for number, each in enumerate(operands)]
    return _computed(name, modifiers, kind, values)


def _word_of(name: str, number: int, words: Sequence[str], kinds: list[str]) -> str:
    """Return what type an operand of an instruction has."""
    if name in ("selp", "slct") and number == 2:
        return "pred" if name == "selp" else kinds[1]
    # Counts and places of bits.
    if number and (name in ("shl", "shr", "bfe") or (name == "bfi" and number > 1)):
        return "u32"
    return _WIDER[kinds[0]] if number == 2 and "wide" in words else kinds[0]


def _computed(name: str, modifiers: list[str], word: str, values: list[str]) -> str:
    kind, result = TYPES[word], TYPES[word]
    is_kept = word in _REALS and "sat" in modifiers
    if word in _REALS:
        _check_words(name, word, modifiers)
        # The first of the keys with rn, where that has a meaning, and without it.
        is_half = word in ("f16", "bf16")
        ignored = ("sat", "ftz", "approx", "full", *["rn"] * is_half)
        named = [modifier for modifier in modifiers if modifier not in ignored]
        keys = (".".join([name, *named]), ".".join([name, *(each for each in named if each not in _IGNORED)]))
        text = _OF_REALS.get(keys[0]) or _OF_REALS.get(keys[1])
        if text is not None and name == "fma" and is_half:
            text = "::loom::fused<{T}>({0}, {1}, {2})"
    else:
        if (word[0] == "b" and name not in _BITS) or (word[0] in "us" and name in _BITS_ALONE):
            raise UnknownInstructionError
        table = _OF_PREDICATES if word == "pred" else _OF_WHOLE
        text = table.get(".".join([name, *modifiers]))
    if (
        text is None
        or len(values) != len(set(re.findall(r"\{\d\}", text)))
        or (name in _OF_32_BITS and width(word) != 32)
        or ("toward_zero" in text and word == "f64")
    ):
        raise UnknownInstructionError
    if "wide" in modifiers:
        result = TYPES[_WIDER[word]]
    shown = text.format(
        *values,
        T=kind,
        F="double" if word == "f64" else "float",
        U=f"uint{max(width(word), 32)}_t",
        W=result,
        V=f"u{result.lstrip('u')}",
        N="" if word[0] == "s" else "_unsigned",
    )
    return f"::loom::kept_in_unit<{kind}>({kind}({shown}))" if is_kept else f"{result}({shown})"


def _check_words(name: str, word: str, modifiers: list[str]) -> None:
    """Refuse what no assembler takes."""
    allowed = {"ftz", "xorsign", "abs", "NaN", "rz"}
    if name in _APPROXIMATE and (word != "f64" or name in ("rcp", "rsqrt")):
        allowed |= {"approx", "full"}
    if name in _ROUNDING:
        allowed.add("rn")
    if name in _SATURATING:
        allowed.add("sat")
    if set(modifiers) - allowed:
        raise UnknownInstructionError


def _compared(word: str, modifiers: list[str], operands: Sequence[str], read: Read) -> str:
    is_real = word in _REALS
    sign, *more = (modifier for modifier in modifiers if modifier != "ftz" or not is_real)
    if len(more) > 1 or len(operands) != 2 + len(more) or word in ("pred", "tf32") or not _is_number(word):
        raise UnknownInstructionError
    a, b = (read(operand, word) for operand in operands[:2])
    if is_real and sign in ("num", "nan"):
        text = f"{'!' * (sign == 'nan')}({a} == {a} && {b} == {b})"
    elif is_real and sign in ("ne", "equ"):  # one is less than the other, or the opposite
        text = f"{'!' * (sign == 'equ')}({a} < {b} || {a} > {b})"
    elif is_real and sign in _UNORDERED:
        text = f"!({a} {_COMPARED[_UNORDERED[sign]]} {b})"
    else:
        signs = {**_COMPARED, **(_UNSIGNED_COMPARED if word[0] == "u" else {})}
        if sign not in signs or (word[0] == "b" and not is_real and sign not in ("eq", "ne")):
            raise UnknownInstructionError
        text = f"({a} {signs[sign]} {b})"
    return f"({text} {_JOINED[more[0]]} {read(operands[2], 'pred')})" if more else text


def _is_number(word: str) -> bool:
    return word not in (*_PAIRS, *_SMALL_PAIRS, *_BY_CHANCE)


def _converted(to: str, source: str, modifiers: list[str], operands: Sequence[str], read: Read) -> str:
    """A conversion between two types, or of two numbers to a pair, or of a pair to a wider one."""
    kind = TYPES[to]
    if "rs" in modifiers:
        return _converted_by_chance(to, source, modifiers, operands, read)
    if to in (*_PAIRS, *_SMALL_PAIRS):
        return _converted_to_pair(to, source, modifiers, operands, read)
    if len(operands) != 1 or not _is_number(to) or not _is_number(source) or "pred" in (to, source):
        raise UnknownInstructionError
    value = read(operands[0], source)
    if to == "tf32" and source == "f32" and modifiers == ["rna"]:
        return f"::loom::tf32({value})"
    if "tf32" in (to, source):
        raise UnknownInstructionError
    is_real, was_real = to in _REALS, source in _REALS
    rounding = next((modifier for modifier in modifiers if modifier in _ROUNDED), None)
    rest = {modifier for modifier in modifiers if modifier != rounding}
    if rest - ({"rz", "sat"} if is_real else {"sat"}) or (rounding and not was_real):
        raise UnknownInstructionError
    if rounding is not None:
        value = f"::loom::{_ROUNDED[rounding]}({'double' if source == 'f64' else 'float'}({value}))"
    if is_real:
        text = _to_real(to, source, value, is_down="rz" in rest)
        return f"::loom::kept_in_unit<{kind}>({text})" if "sat" in rest else text
    if was_real:
        if rounding is None:
            raise UnknownInstructionError
        # Of what is no number, wide types make their highest bit.
        function = "whole_or_highest_bit" if width(to) == 64 or source == "f64" else "whole"
        return f"::loom::{function}<{kind}>({value})"
    return f"::loom::whole_in_range<{kind}>({value})" if "sat" in rest else f"{kind}({value})"


def _to_real(to: str, source: str, value: str, *, is_down: bool) -> str:
    """A conversion to a real number, rounded once."""
    was_wide = source not in _REALS and width(source) == 64
    if (is_down and (to == "f64" or was_wide)) or (to == "bf16" and was_wide):
        raise UnknownInstructionError
    if is_down:
        return f"::loom::toward_zero<{TYPES[to]}>(double({value}))"
    if {to, source} == {"f16", "bf16"}:
        value = f"float({value})"
    if to in ("f16", "bf16") and (source == "f64" or (source not in _REALS and width(source) == 32)):
        value = f"::loom::rounded_to_odd(double({value}))"
    return f"{TYPES[to]}({value})"


def _converted_to_pair(
    to: str, source: str, modifiers: list[str], operands: Sequence[str], read: Read
) -> str:
    elements = {**{word: TYPES[each] for word, each in _PAIRS.items()}, **_SMALL_PAIRS}
    is_small, element = to in _SMALL_PAIRS, elements[to]
    # Small numbers have no infinity here: what is too large becomes the largest.
    wanted = [["rp", "satfinite"]] if to == "ue8m0x2" else [["satfinite"]] if is_small else [[], ["rz"]]
    if to == "f32x2" or modifiers not in wanted:
        raise UnknownInstructionError
    if source == "f32" and len(operands) == 2:
        upper, lower = (read(operand, source) for operand in operands)
        down = "true" if "rz" in modifiers else "false"
        return f"::loom::pair_of<{element}, {TYPES[to]}, {down}>({lower}, {upper})"
    is_known = source in ("f16x2", "bf16x2") if is_small else source in _SMALL_PAIRS
    if is_known and len(operands) == 1:
        return (
            f"::loom::pair_converted<{element}, {TYPES[to]}, {elements[source]}>({read(operands[0], source)})"
        )
    raise UnknownInstructionError


def _converted_by_chance(
    to: str, source: str, modifiers: list[str], operands: Sequence[str], read: Read
) -> str:
    """A conversion that rounds by bits that it is given: up as often as the number above is nearer."""
    element, count = _BY_CHANCE[to]
    names = [name.strip() for text in operands[:-1] for name in text.strip("{}").split(",")]
    if len(names) != count or source != "f32" or set(modifiers) - {"rs", "satfinite"}:
        raise UnknownInstructionError
    # The last one is in the lowest bits.
    numbers = ", ".join(read(name, source) for name in reversed(names))
    is_finite = "true" if "satfinite" in modifiers else "false"
    given = f"{{{numbers}}}, {read(operands[-1], 'u32')}"
    return f"::loom::by_chance<{element}, {TYPES[to]}, {count}, {is_finite}>({given})"

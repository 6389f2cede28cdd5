"""Inline PTX of a few instructions, as C++: special registers, approximations, loads, stores, atomics."""

from __future__ import annotations

import re

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OPERAND = re.compile(r'(?:\[\s*\w+\s*\]\s*)?"([^"]*)"\s*\(')

_REGISTERS = {
    "%laneid": "::loom_cuda::lane()",
    "%warpid": "(::loom_cuda::thread_rank() / 32)",
    "%nwarpid": "((blockDim.x * blockDim.y * blockDim.z + 31) / 32)",
    "%smid": "0u",
    "%nsmid": "1u",
    "%clock": "static_cast<unsigned>(loom_cuda_clock())",
    "%clock64": "loom_cuda_clock()",
    "%globaltimer": "loom_cuda_clock()",
    "%globaltimer_lo": "static_cast<unsigned>(loom_cuda_clock())",
    "%lanemask_eq": "(1u << ::loom_cuda::lane())",
    "%lanemask_lt": "((1u << ::loom_cuda::lane()) - 1)",
    "%lanemask_le": "((2u << ::loom_cuda::lane()) - 1)",
    "%lanemask_gt": "~((2u << ::loom_cuda::lane()) - 1)",
    "%lanemask_ge": "~((1u << ::loom_cuda::lane()) - 1)",
    **{
        f"%{short}.{axis}": f"{long}.{axis}"
        for short, long in (
            ("tid", "threadIdx"),
            ("ntid", "blockDim"),
            ("ctaid", "blockIdx"),
            ("nctaid", "gridDim"),
        )
        for axis in "xyz"
    },
}
_FUNCTIONS = {
    "ex2": "exp2f({0})",
    "lg2": "log2f({0})",
    "rcp": "1 / ({0})",
    "rsqrt": "rsqrtf({0})",
    "sqrt": "sqrtf({0})",
    "sin": "sinf({0})",
    "cos": "cosf({0})",
    "tanh": "tanhf({0})",
    "neg": "-({0})",
    "abs": "fabsf({0})",
    "add": "({0}) + ({1})",
    "sub": "({0}) - ({1})",
    "mul": "({0}) * ({1})",
    "div": "({0}) / ({1})",
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
    "fma": "({0}) * ({1}) + ({2})",
    "mov": "{0}",
    "shl": "({0}) << ({1})",
    "and": "({0}) & ({1})",
    "or": "({0}) | ({1})",
    "xor": "({0}) ^ ({1})",
    "not": "~({0})",
    "popc": "__popc({0})",
    "clz": "__clz({0})",
    "brev": "__brev({0})",
    "prmt": "__byte_perm({0}, {1}, {2})",
}
# Functions that mean this only with these words behind their names.
_TYPES = {
    "shl": "b32",
    "prmt": "b32",
    "popc": "b32",
    "clz": "b32",
    "brev": "b32",
    "mul": "f32|f64|rn",
    "abs": "f32",
}
_NOTHING = (
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "griddepcontrol",
    "discard",
    "applypriority",
    "nanosleep",
)


class UnknownInstructionError(Exception):
    """An instruction that has no translation."""


def translated(inside: str) -> str:
    """Return a C++ statement without its semicolon for what stands between the brackets of ``asm``.

    Raises:
        UnknownInstructionError: with the instruction's text.
    """
    parts = _split(inside, ":")
    code = "".join(_STRING.findall(parts[0])).replace("\\n", "\n").replace("\\t", " ")
    operands = [_operand(one) for part in parts[1:3] for one in _split(part, ",") if one.strip()]
    body = code.strip().removeprefix("{").removesuffix("}")
    statements = [_instruction(one.strip(), operands) for one in re.split(r"[;\n]", body) if one.strip()]
    return f"do {{ {' '.join(f'{one};' for one in statements if one)} }} while (0)"


def _split(text: str, separator: str) -> list[str]:
    """Split outside of strings and brackets; ``::`` outside is two separators of ``asm``."""
    parts, depth, begin, at = [], 0, 0, 0
    while at < len(text):
        if text[at] == '"':
            at = _STRING.match(text, at).end()  # type: ignore[union-attr]
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if text[at] == separator and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [*parts, text[begin:]]


def _operand(text: str) -> str:
    found = _OPERAND.match(text.strip())
    if found is None:
        raise UnknownInstructionError(f"with the operand {text.strip()!r}")
    return text.strip()[found.end() : -1]


def _instruction(text: str, operands: list[str]) -> str:
    words = text.split(None, 1)
    opcode, *kinds = words[0].split(".")
    given = [_value(one.strip(), operands, text) for one in _split(words[1], ",")] if len(words) > 1 else []
    if opcode in _NOTHING:
        return ""
    if opcode in ("bar", "barrier") and kinds[:1] == ["sync"] and given == ["0"]:
        return "__syncthreads()"
    if opcode == "trap":
        return "__trap()"
    if opcode == "ld" and "shared" not in kinds and len(given) == 2:
        return _load(given, kinds)
    if opcode == "st" and "shared" not in kinds and len(given) == 2:
        return _store(given, kinds)
    if opcode in ("red", "atom") and "shared" not in kinds:
        return _atomic(opcode, given, kinds, text)
    wanted = _TYPES.get(opcode)
    is_known = opcode in _FUNCTIONS and (wanted is None or any(kind in wanted.split("|") for kind in kinds))
    is_known = is_known and not any("x2" in kind or kind in ("f16", "bf16", "cc") for kind in kinds)
    if not is_known or not given:
        raise UnknownInstructionError(repr(text))
    try:
        return f"{given[0]} = {_FUNCTIONS[opcode].format(*given[1:])}"
    except IndexError:
        raise UnknownInstructionError(repr(text)) from None


def _value(text: str, operands: list[str], instruction: str) -> str:
    if text.startswith(("[", "{")):
        inside = [_value(one.strip(), operands, instruction) for one in _split(text[1:-1], ",")]
        return "\0".join(inside)
    if text in _REGISTERS:
        return _REGISTERS[text]
    if re.fullmatch(r"%\d+", text) and int(text[1:]) < len(operands):
        return operands[int(text[1:])]
    if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|\d+)", text):
        return text
    if re.fullmatch(r"%\d+\s*\+\s*\d+", text):
        number, _, offset = text[1:].partition("+")
        return f"(reinterpret_cast<const char*>({operands[int(number)]}) + {offset.strip()})"
    raise UnknownInstructionError(repr(instruction))


_POINTEES = {
    **{
        f"{kind}8": f"{sign}char" for kind, sign in (("u", "unsigned "), ("s", "signed "), ("b", "unsigned "))
    },
    **{f"{kind}16": f"{sign}short" for kind, sign in (("u", "unsigned "), ("s", ""), ("b", "unsigned "))},
    **{f"{kind}32": f"{sign}int" for kind, sign in (("u", "unsigned "), ("s", ""), ("b", "unsigned "))},
    **{f"{kind}64": f"{sign}long long" for kind, sign in (("u", "unsigned "), ("s", ""), ("b", "unsigned "))},
    "f32": "float",
    "f64": "double",
}


def _pointee(kinds: list[str]) -> str:
    if kinds[-1] not in _POINTEES:
        raise UnknownInstructionError(repr(f"ld.{'.'.join(kinds)}"))
    return _POINTEES[kinds[-1]]


def _load(given: list[str], kinds: list[str]) -> str:
    kind = _pointee(kinds)
    to = given[0].split("\0")
    return " ".join(
        f"{one} = reinterpret_cast<const {kind}*>({given[1]})[{number}]{';' if number + 1 < len(to) else ''}"
        for number, one in enumerate(to)
    )


def _store(given: list[str], kinds: list[str]) -> str:
    kind = _pointee(kinds)
    values = given[1].split("\0")
    return " ".join(
        f"reinterpret_cast<{kind}*>({given[0]})[{number}] = {one}{';' if number + 1 < len(values) else ''}"
        for number, one in enumerate(values)
    )


_ATOMICS = {
    **{
        name: f"atomic{name.capitalize()}" for name in ("add", "and", "or", "xor", "min", "max", "inc", "dec")
    },
    "exch": "atomicExch",
    "cas": "atomicCAS",
}


def _atomic(opcode: str, given: list[str], kinds: list[str], text: str) -> str:
    """Atomics of all orders and scopes are those of CUDA's functions, which order all others."""
    function = next((_ATOMICS[kind] for kind in kinds if kind in _ATOMICS), None)
    to = given[:1] if opcode == "atom" else []
    address, values = given[len(to) : len(to) + 1], given[len(to) + 1 :]
    is_known = function is not None and kinds[-1] in _POINTEES and not {"v2", "v4", "v8"} & set(kinds)
    if not is_known or not address or len(values) != (2 if function == "atomicCAS" else 1):
        raise UnknownInstructionError(repr(text))
    kind = _pointee(kinds)
    assigned = f"{to[0]} = " if to else ""
    return f"{assigned}{function}(reinterpret_cast<{kind}*>({address[0]}), {', '.join(values)})"

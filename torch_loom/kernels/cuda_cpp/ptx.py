"""Inline PTX, as C++: arithmetic of numbers, registers, predicates, loads, stores, atomics.

What a warp does together, and packed registers, are in :mod:`~torch_loom.kernels.cuda_cpp.ptx_matrices`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torch_loom.kernels.cuda_cpp import ptx_matrices
from torch_loom.kernels.cuda_cpp.ptx_matrices import UnknownInstructionError

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_INSTRUCTION = re.compile(r"([^\s{\[]*)\s*(.*)", re.DOTALL)
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
    "mad": "({0}) * ({1}) + ({2})",
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
    "mad": "lo|f32|f64",
    "shl": "b32",
    "prmt": "b32",
    "popc": "b32",
    "clz": "b32",
    "brev": "b32",
    "mul": "f32|f64|rn|lo",
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


_TYPE_NAMES = {
    **{f"{kind}8": f"{sign} char" for kind, sign in (("u", "unsigned"), ("s", "signed"), ("b", "unsigned"))},
    **{
        f"{kind}16": f"{sign} short" for kind, sign in (("u", "unsigned"), ("s", "signed"), ("b", "unsigned"))
    },
    **{f"{kind}32": f"{sign} int" for kind, sign in (("u", "unsigned"), ("s", "signed"), ("b", "unsigned"))},
    **{
        f"{kind}64": f"{sign} long long"
        for kind, sign in (("u", "unsigned"), ("s", "signed"), ("b", "unsigned"))
    },
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "hi": ">"}
_ATOMICS = {
    **{
        name: f"atomic{name.capitalize()}" for name in ("add", "and", "or", "xor", "min", "max", "inc", "dec")
    },
    "exch": "atomicExch",
    "cas": "atomicCAS",
}


def translated(inside: str) -> str:
    """Return a C++ statement without its semicolon for what stands between the brackets of ``asm``.

    Raises:
        UnknownInstructionError: with the instruction's text.
    """
    parts = _split(inside, ":")
    code = "".join(_STRING.findall(parts[0])).replace("\\n", "\n").replace("\\t", " ").replace("%%", "%")
    operands = [_operand(one) for part in parts[1:3] for one in _split(part, ",") if one.strip()]
    body = code.strip().removeprefix("{").removesuffix("}")
    program = _Program(operands)
    statements = [program.statement(one.strip()) for one in re.split(r"[;\n]", body) if one.strip()]
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
    value = text.strip()[found.end() : -1]
    return f"({value})" if "?" in value else value


class _Program:
    """The instructions of one ``asm``, which share its operands and the registers that it declares."""

    def __init__(self, operands: list[str]) -> None:
        self._operands = operands
        self._registers: dict[str, str] = {}

    def statement(self, text: str) -> str:
        """Return C++ for an instruction, a declaration or nothing."""
        guard = re.match(r"@(!?)(%?\w+)\s+", text)
        if guard is not None:
            condition = f"{guard[1]}{self._value(guard[2], text)}"
            return f"if ({condition}) {{ {self.statement(text[guard.end() :])}; }}"
        if text.startswith(".reg"):
            return self._declaration(text)
        name, rest = _INSTRUCTION.match(text).groups()  # type: ignore[union-attr]
        opcode, *kinds = name.split(".")
        given = [self._value(one.strip(), text) for one in _split(rest, ",")] if rest else []
        try:
            return _instruction(opcode, kinds, given, text)
        except (IndexError, KeyError):
            raise UnknownInstructionError(repr(text)) from None

    def _declaration(self, text: str) -> str:
        found = re.fullmatch(r"\.reg\s*\.(\w+)\s+([\w%\s,]+)", text)
        if found is None or found[1] not in _TYPE_NAMES:
            raise UnknownInstructionError(repr(text))
        names = [one.strip() for one in found[2].split(",")]
        own = {name: f"ptx_{name.lstrip('%')}" for name in names}
        self._registers.update(own)
        return f"{_TYPE_NAMES[found[1]]} {', '.join(f'{name}{{}}' for name in own.values())}"

    def _value(self, text: str, instruction: str) -> str:
        if text.startswith(("[", "{")):
            inside = [self._value(one.strip(), instruction) for one in _split(text[1:-1], ",")]
            return "\0".join(inside)
        if text in self._registers:
            return self._registers[text]
        if text in _REGISTERS:
            return _REGISTERS[text]
        if re.fullmatch(r"%\d+", text) and int(text[1:]) < len(self._operands):
            return self._operands[int(text[1:])]
        if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?)", text):
            return text
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return f"__int_as_float(0x{text[2:]})"
        moved = re.fullmatch(r"(%?\w+)\s*\+\s*(\d+)", text)
        if moved is not None:
            address = self._value(moved[1], instruction)
            return f"::loom_cuda::ptx::behind({address}, {moved[2]})"
        raise UnknownInstructionError(repr(instruction))


def _instruction(opcode: str, kinds: list[str], given: list[str], text: str) -> str:
    if opcode in _NOTHING:
        return ""
    if opcode in ("bar", "barrier") and kinds[:1] == ["sync"] and given == ["0"]:
        return "__syncthreads()"
    if opcode == "trap":
        return "__trap()"
    own: Callable[[list[str], list[str], str], str] | None = _TRANSLATIONS.get(opcode)
    if own is not None:
        return own(kinds, given, text)
    packed = ptx_matrices.translated(opcode, kinds, given, text)
    if packed is not None:
        return packed
    wanted = _TYPES.get(opcode)
    is_known = opcode in _FUNCTIONS and (wanted is None or any(kind in wanted.split("|") for kind in kinds))
    is_known = is_known and not any("x2" in kind or kind in ("f16", "bf16", "cc", "wide") for kind in kinds)
    if not is_known or not given:
        raise UnknownInstructionError(repr(text))
    return f"{given[0]} = {_FUNCTIONS[opcode].format(*given[1:])}"


def _pointer(address: str, kinds: list[str], text: str, *, qualifier: str = "") -> str:
    if kinds[-1] not in _TYPE_NAMES or kinds[-1] == "pred":
        raise UnknownInstructionError(repr(text))
    where = f"::loom_cuda::of_shared({address})" if "shared" in kinds else f"({address})"
    return (
        f"reinterpret_cast<{qualifier}{_TYPE_NAMES[kinds[-1]]}*>{where if where[0] == '(' else f'({where})'}"
    )


def _load(kinds: list[str], given: list[str], text: str) -> str:
    pointer = _pointer(given[1], kinds, text, qualifier="const ")
    places = [f"{pointer}[{number}]" for number in range(len(given[0].split("\0")))]
    if {"acquire", "relaxed", "volatile"} & set(kinds):
        places = [f"::loom_cuda::ptx::read_now(&{place})" for place in places]
    return "; ".join(f"{one} = {place}" for one, place in zip(given[0].split("\0"), places, strict=True))


def _store(kinds: list[str], given: list[str], text: str) -> str:
    pointer = _pointer(given[0], kinds, text, qualifier="volatile " if "volatile" in kinds else "")
    return "; ".join(f"{pointer}[{number}] = {one}" for number, one in enumerate(given[1].split("\0")))


def _atomic(kinds: list[str], given: list[str], text: str) -> str:
    """Atomics of all orders and scopes are those of CUDA's functions, which order all others."""
    function = next((_ATOMICS[kind] for kind in kinds if kind in _ATOMICS), None)
    to = given[:1] if text.lstrip().startswith("atom") else []
    address, values = given[len(to) : len(to) + 1], given[len(to) + 1 :]
    is_known = function is not None and not {"v2", "v4", "v8"} & set(kinds)
    if not is_known or not address or len(values) != (2 if function == "atomicCAS" else 1):
        raise UnknownInstructionError(repr(text))
    assigned = f"{to[0]} = " if to else ""
    return f"{assigned}{function}({_pointer(address[0], kinds, text)}, {', '.join(values)})"


def _compare(kinds: list[str], given: list[str], text: str) -> str:
    if len(kinds) != 2 or len(given) != 3:
        raise UnknownInstructionError(repr(text))
    kind, comparison = _TYPE_NAMES[kinds[1]], _COMPARISONS[kinds[0]]
    return f"{given[0]} = static_cast<{kind}>({given[1]}) {comparison} static_cast<{kind}>({given[2]})"


def _policy(kinds: list[str], given: list[str], text: str) -> str:
    """How a cache treats what is read: there is none to tell."""
    return f"{given[0]} = 0"


def _select(kinds: list[str], given: list[str], text: str) -> str:
    return f"{given[0]} = {given[3]} ? ({given[1]}) : ({given[2]})"


def _address(kinds: list[str], given: list[str], text: str) -> str:
    """Between kinds of addresses, of which only those of shared memory are others."""
    if "shared" not in kinds:
        return f"{given[0]} = {given[1]}"
    if kinds[0] == "to":
        return f"{given[0]} = ::loom_cuda::shared_address(reinterpret_cast<const void*>({given[1]}))"
    return f"{given[0]} = reinterpret_cast<unsigned long long>(::loom_cuda::of_shared({given[1]}))"


def _convert(kinds: list[str], given: list[str], text: str) -> str:
    to, source = kinds[-2:]
    if (to, source) == ("f32", "f16"):
        return f"{given[0]} = ::loom_cuda::float_of_half({given[1]})"
    if (to, source) == ("f16", "f32") and kinds[:-2] in ([], ["rn"]):
        return f"{given[0]} = ::loom_cuda::half_of_float({given[1]})"
    if (to, source) == ("tf32", "f32"):
        return f"{given[0]} = ::loom_cuda::ptx::rounded_tf32({given[1]})"
    are_whole = to[0] in "usb" and source[0] in "usb" and len(kinds) == 2
    is_widened = to in ("f32", "f64") and kinds[:-2] in ([], ["rn"])
    if not are_whole and not (is_widened and source in _TYPE_NAMES):
        raise UnknownInstructionError(repr(text))
    return f"{given[0]} = static_cast<{_TYPE_NAMES[to]}>(static_cast<{_TYPE_NAMES[source]}>({given[1]}))"


def _move(kinds: list[str], given: list[str], text: str) -> str:
    to, source = given[0].split("\0"), given[1].split("\0")
    if len(to) == len(source) == 1:
        return f"{given[0]} = {given[1]}"
    half = {"b32": ("unsigned short", 16), "b64": ("unsigned int", 32)}[kinds[-1]]
    whole = _TYPE_NAMES[kinds[-1]]
    if len(source) == 2 and len(to) == 1:
        low, high = (f"static_cast<{whole}>(static_cast<{half[0]}>({one}))" for one in source)
        return f"{to[0]} = {low} | {high} << {half[1]}"
    if len(to) == 2 and len(source) == 1:
        low, high = (f"static_cast<{half[0]}>(({source[0]}) >> {bits})" for bits in (0, half[1]))
        return f"{to[0]} = {low}; {to[1]} = {high}"
    raise UnknownInstructionError(repr(text))


_TRANSLATIONS: dict[str, Callable[[list[str], list[str], str], str]] = {
    "ld": _load,
    "st": _store,
    "red": _atomic,
    "atom": _atomic,
    "setp": _compare,
    "selp": _select,
    "createpolicy": _policy,
    "cvta": _address,
    "cvt": _convert,
    "mov": _move,
}

__all__ = ["UnknownInstructionError", "translated"]

"""Inline PTX, as C++: arithmetic of numbers, registers, predicates, loads, stores, atomics.

What a warp does together, and packed registers, are in :mod:`~torch_loom.kernels.cuda_cpp.ptx_matrices`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torch_loom.kernels.cuda_cpp import ptx_matrices
from torch_loom.kernels.cuda_cpp.ptx_matrices import UnknownInstructionError

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BEHIND_NAME = re.compile(r"\s*(?=[{\[])|\s+")
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
# By the type of an instruction, T: f, d, s and u are float, double, signed and unsigned ones, b bits.
_FLOATS = {
    "ex2": "exp2{f}({0})",
    "lg2": "log2{f}({0})",
    "rcp": "1 / ({0})",
    "rsqrt": "1 / sqrt{f}({0})",
    "sqrt": "sqrt{f}({0})",
    "sin": "sin{f}({0})",
    "cos": "cos{f}({0})",
    "tanh": "tanh{f}({0})",
    "neg": "-({0})",
    "abs": "fabs{f}({0})",
    "add": "({0}) + ({1})",
    "sub": "({0}) - ({1})",
    "mul": "({0}) * ({1})",
    "div": "({0}) / ({1})",
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
    "fma": "fma{f}({0}, {1}, {2})",
    "mad": "fma{f}({0}, {1}, {2})",
}
_WHOLE = {
    "neg": "-({0})",
    "abs": "({0}) < 0 ? -({0}) : ({0})",
    "add": "({0}) + ({1})",
    "sub": "({0}) - ({1})",
    "mul": "({0}) * ({1})",
    "mad": "({0}) * ({1}) + ({2})",
    "div": "({0}) / ({1})",
    "rem": "({0}) % ({1})",
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
}
_BITS = {
    "and": "({0}) & ({1})",
    "or": "({0}) | ({1})",
    "xor": "({0}) ^ ({1})",
    "not": "~({0})",
    "popc": "__popc({0})",
    "clz": "__clz({0})",
    "brev": "__brev({0})",
    "prmt": "__byte_perm({0}, {1}, {2})",
    "shl": "::loom_cuda::ptx::shifted_left({0}, {1})",
    "shr": "::loom_cuda::ptx::shifted_right({0}, {1})",
}
_OF_PREDICATES = {"and": "({0}) && ({1})", "or": "({0}) || ({1})", "xor": "({0}) != ({1})", "not": "!({0})"}
# Words that change nothing here.
_ROUNDING = {"rn", "approx", "ftz", "full"}
_ORDERS = {"weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "gpu", "cta", "cluster", "sys"}
_SPACES = {"global", "shared", "shared::cta", "local"}
_CACHES = {
    *("nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::no_allocate", "L1::evict_last", "L1::evict_first"),
    *("L1::evict_normal", "L1::evict_unchanged", "L2::64B", "L2::128B", "L2::256B"),
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
_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "neu": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "hi": ">",
}
_ATOMICS = {
    **{
        name: f"atomic{name.capitalize()}" for name in ("add", "and", "or", "xor", "min", "max", "inc", "dec")
    },
    "exch": "atomicExch",
    "cas": "atomicCAS",
}
_HERE = "::loom_cuda::ptx"


def translated(inside: str) -> str:
    """Return a C++ statement without its semicolon for what stands between the brackets of ``asm``.

    Inputs are read before the first instruction, and outputs written behind the last one.

    Raises:
        UnknownInstructionError: with the instruction's text.
    """
    parts = _split(inside, ":")
    code = "".join(_STRING.findall(parts[0])).replace("\\n", "\n").replace("\\t", " ").replace("%%", "%")
    outputs, inputs = (
        [_operand(one) for one in _split(part, ",") if one.strip()] for part in (*parts[1:3], "", "")[:2]
    )
    names = [f"ptx_{number}" for number in range(len(outputs) + len(inputs))]
    before, after = [], []
    for name, (kind, value) in zip(names, outputs, strict=False):
        begins = f"{name}_to" if kind.startswith("+") else ""
        before.append(f"auto&& {name}_to = {value}; {_HERE}::Plain<decltype({name}_to)> {name}{{{begins}}}")
        after.append(f"{name}_to = {name}")
    for name, (_, value) in zip(names[len(outputs) :], inputs, strict=True):
        before.append(f"const auto {name} = {value}")
    body = code.strip().removeprefix("{").removesuffix("}")
    program = _Program(names)
    statements = [program.statement(one.strip()) for one in re.split(r"[;\n]", body) if one.strip()]
    return f"do {{ {' '.join(f'{one};' for one in (*before, *statements, *after) if one)} }} while (0)"


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


def _operand(text: str) -> tuple[str, str]:
    found = _OPERAND.match(text.strip())
    if found is None:
        raise UnknownInstructionError(f"with the operand {text.strip()!r}")
    return found[1], text.strip()[found.end() : -1]


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
        name, *rest = _BEHIND_NAME.split(text, maxsplit=1)
        opcode, *kinds = name.split(".")
        given = [self._value(one.strip(), text) for one in _split(rest[0], ",")] if rest else []
        try:
            return _instruction(opcode, kinds, given, text)
        except (IndexError, KeyError):
            raise UnknownInstructionError(repr(text)) from None

    def _declaration(self, text: str) -> str:
        found = re.fullmatch(r"\.reg\s*\.(\w+)\s+([\w%\s,]+)", text)
        if found is None or found[1] not in _TYPE_NAMES:
            raise UnknownInstructionError(repr(text))
        names = [one.strip() for one in found[2].split(",")]
        own = {name: f"ptx_register_{name.lstrip('%')}" for name in names}
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
        moved = re.fullmatch(r"(%?\w+)\s*\+\s*(-?\d+)", text)
        if moved is not None:
            return f"{_HERE}::behind({self._value(moved[1], instruction)}, {moved[2]})"
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
    return packed if packed is not None else _arithmetic(opcode, kinds, given, text)


def _arithmetic(opcode: str, kinds: list[str], given: list[str], text: str) -> str:
    of = kinds[-1] if kinds else ""
    words = set(kinds[:-1])
    if of in ("f32", "f64"):
        form, allowed = _FLOATS.get(opcode), _ROUNDING
    elif of == "pred":
        form, allowed = _OF_PREDICATES.get(opcode), set()
    elif of[:1] == "b" or opcode in ("shl", "shr", "popc", "clz", "brev"):
        form, allowed = _BITS.get(opcode), set()
    else:
        form, allowed = _WHOLE.get(opcode), {"lo"}
    needs_low = form is not None and of[:1] in "su" and opcode in ("mul", "mad")
    if form is None or of not in _TYPE_NAMES or words - allowed or (needs_low and "lo" not in words):
        raise UnknownInstructionError(repr(text))
    if len(given) - 1 != sum(f"{{{number}}}" in form for number in range(3)):
        raise UnknownInstructionError(repr(text))
    values = [_read(one, of) for one in given[1:]]
    return _write(given[0], of, form.format(*values, f="f" if of == "f32" else ""))


def _read(value: str, kind: str) -> str:
    """An operand as an instruction of a type reads it: the bits of a register, and not its number."""
    return f"{_HERE}::as<{_TYPE_NAMES[kind]}>({value})"


def _write(to: str, kind: str, value: str) -> str:
    return f"{_HERE}::put<{_TYPE_NAMES[kind]}>({to}, {value})"


def _only(kinds: list[str], allowed: set[str], text: str) -> None:
    if set(kinds) - allowed:
        raise UnknownInstructionError(repr(text))


def _pointer(address: str, kinds: list[str], text: str) -> str:
    if kinds[-1] not in _TYPE_NAMES or kinds[-1] == "pred":
        raise UnknownInstructionError(repr(text))
    where = "at_shared" if {"shared", "shared::cta"} & set(kinds) else "at"
    return f"{_HERE}::{where}<{_TYPE_NAMES[kinds[-1]]}>({address})"


def _load(kinds: list[str], given: list[str], text: str) -> str:
    _only(kinds[:-1], _ORDERS | _SPACES | _CACHES | {"v2", "v4", "const"}, text)
    read = "read_now" if {"acquire", "relaxed", "volatile"} & set(kinds) else "read"
    to = given[0].split("\0")
    # All before the first is written, which may be part of the address.
    own = "; ".join(
        f"const auto ptx_read{n} = {_HERE}::{read}({_pointer(given[1], kinds, text)} + {n})"
        for n in range(len(to))
    )
    written = "; ".join(_write(one, kinds[-1], f"ptx_read{n}") for n, one in enumerate(to))
    return f"{{ {own}; {written}; }}"


def _store(kinds: list[str], given: list[str], text: str) -> str:
    _only(kinds[:-1], _ORDERS | _SPACES | _CACHES | {"v2", "v4"}, text)
    write = "write_now" if {"release", "relaxed", "volatile"} & set(kinds) else "write"
    pointer = _pointer(given[0], kinds, text)
    return "; ".join(
        f"{_HERE}::{write}({pointer} + {n}, {_read(one, kinds[-1])})"
        for n, one in enumerate(given[1].split("\0"))
    )


def _atomic(kinds: list[str], given: list[str], text: str) -> str:
    """Atomics of all orders and scopes are those of CUDA's functions, which order all others."""
    _only(kinds[:-1], _ORDERS | _SPACES | set(_ATOMICS) | {"noftz"}, text)
    function = next((_ATOMICS[kind] for kind in kinds if kind in _ATOMICS), None)
    to = given[:1] if text.lstrip().startswith("atom") else []
    address, values = given[len(to) : len(to) + 1], given[len(to) + 1 :]
    if function is None or not address or len(values) != (2 if function == "atomicCAS" else 1):
        raise UnknownInstructionError(repr(text))
    pointer = _pointer(address[0], kinds, text)
    call = f"{function}({pointer}, {', '.join(_read(value, kinds[-1]) for value in values)})"
    return _write(to[0], kinds[-1], call) if to else call


def _compare(kinds: list[str], given: list[str], text: str) -> str:
    kinds = [kind for kind in kinds if kind != "ftz"]
    if len(kinds) != 2 or len(given) != 3:
        raise UnknownInstructionError(repr(text))
    first, second = (_read(one, kinds[1]) for one in given[1:])
    if kinds[1][0] == "f" and kinds[0] == "ne":  # false where one is no number
        return f"{given[0]} = {first} < {second} || {second} < {first}"
    return f"{given[0]} = {first} {_COMPARISONS[kinds[0]]} {second}"


def _policy(kinds: list[str], given: list[str], text: str) -> str:
    """How a cache treats what is read: there is none to tell."""
    return f"{given[0]} = 0"


def _select(kinds: list[str], given: list[str], text: str) -> str:
    _only(kinds[:-1], set(), text)
    return _write(
        given[0], kinds[-1], f"{given[3]} ? {_read(given[1], kinds[-1])} : {_read(given[2], kinds[-1])}"
    )


def _address(kinds: list[str], given: list[str], text: str) -> str:
    """Between kinds of addresses, of which only those of shared memory are others."""
    _only(kinds, _SPACES | {"to", "u32", "u64", "const"}, text)
    if not {"shared", "shared::cta"} & set(kinds):
        return f"{given[0]} = {given[1]}"
    if kinds[0] == "to":
        return f"{given[0]} = ::loom_cuda::shared_address({_HERE}::at<char>({given[1]}))"
    return f"{given[0]} = reinterpret_cast<unsigned long long>(::loom_cuda::of_shared({given[1]}))"


def _convert(kinds: list[str], given: list[str], text: str) -> str:
    to, source, how = kinds[-2], kinds[-1], kinds[:-2]
    if (to, source) == ("f32", "f16") and how == []:
        return _write(given[0], to, f"::loom_cuda::float_of_half({_read(given[1], 'b16')})")
    if (to, source) == ("f16", "f32") and how == ["rn"]:
        return _write(given[0], "b16", f"::loom_cuda::half_of_float({_read(given[1], source)})")
    if (to, source) == ("tf32", "f32") and how == ["rna"]:
        return _write(given[0], "b32", f"{_HERE}::rounded_tf32({_read(given[1], source)})")
    are_whole = to[0] in "us" and source[0] in "us" and how == []
    is_widened = to in ("f32", "f64") and source in _TYPE_NAMES and how in ([], ["rn"])
    if not are_whole and not is_widened:
        raise UnknownInstructionError(repr(text))
    return _write(given[0], to, f"static_cast<{_TYPE_NAMES[to]}>({_read(given[1], source)})")


def _move(kinds: list[str], given: list[str], text: str) -> str:
    to, source = given[0].split("\0"), given[1].split("\0")
    if len(to) == len(source) == 1:
        return _write(to[0], kinds[-1], _read(source[0], kinds[-1]))
    half, bits = {"b32": ("b16", 16), "b64": ("b32", 32)}[kinds[-1]]
    whole = _TYPE_NAMES[kinds[-1]]
    if len(source) == 2 and len(to) == 1:
        low, high = (f"static_cast<{whole}>({_read(one, half)})" for one in source)
        return _write(to[0], kinds[-1], f"{low} | {high} << {bits}")
    if len(to) == 2 and len(source) == 1:
        parts = (f"static_cast<{_TYPE_NAMES[half]}>(ptx_whole >> {shift})" for shift in (0, bits))
        written = "; ".join(_write(one, half, part) for one, part in zip(to, parts, strict=True))
        return f"{{ const auto ptx_whole = {_read(source[0], kinds[-1])}; {written}; }}"
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

"""Inline PTX of CUDA C++, as C++: special registers, loads, stores, atomics, addresses.

What computes is in :mod:`torch_loom.kernels.ptx`, and what a warp does together in
:mod:`~torch_loom.kernels.cuda_cpp.ptx_warps` and :mod:`~torch_loom.kernels.cuda_cpp.ptx_matrices`.
"""

from __future__ import annotations

import itertools
import re

from torch_loom.kernels.cuda_cpp.ptx_matrices import Matrices
from torch_loom.kernels.cuda_cpp.ptx_warps import Warps
from torch_loom.kernels.ptx.instructions import TYPES, UnknownInstructionError
from torch_loom.kernels.ptx.statements import CACHES, MEMORY, ORDERS, list_of, registers_of

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
_SHARED = {"shared", "shared::cta"}
_SPACES = {*_SHARED, "global", "local"}
_ATOMICS = {
    **{
        name: f"atomic{name.capitalize()}" for name in ("add", "and", "or", "xor", "min", "max", "inc", "dec")
    },
    "exch": "atomicExch",
    "cas": "atomicCAS",
}
_CONSTRAINTS = {"h", "r", "l", "f", "d", "n"}
_HERE = "::loom_cuda::ptx"


def translated(inside: str) -> str:
    """Return a C++ statement without its semicolon for what stands between the brackets of ``asm``.

    Inputs are read before the first instruction, and outputs written behind the last one.

    Raises:
        UnknownInstructionError: with the instruction's text.
    """
    parts = _split(inside)
    code = "".join(_STRING.findall(parts[0])).replace("\\n", "\n").replace("\\t", " ").replace("%%", "%")
    outputs, inputs = (
        [_operand(each) for each in list_of(part) if each] for part in (*parts[1:3], "", "")[:2]
    )
    program = _Program()
    before, after = [], []
    for number, (kind, value) in enumerate([*outputs, *inputs]):
        name = f"ptx_{number}"
        letter = kind.strip("=+&")
        if letter.isdecimal() and int(letter) < len(outputs) <= number:
            # In the register of that output.
            program.add(f"%{number}", f"ptx_{letter}")
            before.append(f"ptx_{letter} = {value};")
            continue
        if letter not in _CONSTRAINTS:
            raise UnknownInstructionError(f"with the constraint {kind!r}")
        program.add(f"%{number}", name)
        if number < len(outputs):
            begins = f"{name}_to" if kind.startswith("+") else ""
            before.append(
                f"auto&& {name}_to = {value}; {_HERE}::Plain<decltype({name}_to)> {name}{{{begins}}};"
            )
            after.append(f"{name}_to = {name};")
        else:
            before.append(f"const auto {name} = {value};")
    return (
        f"do {{ {' '.join(line for line in (*before, *program.lines_of(code), *after) if line)} }} while (0)"
    )


def _split(text: str) -> list[str]:
    """Split at colons outside of strings and brackets; ``::`` outside is two separators of ``asm``."""
    parts, depth, begin, at = [], 0, 0, 0
    while at < len(text):
        if text[at] == '"':
            found = _STRING.match(text, at)
            if found is None:
                raise UnknownInstructionError(repr(text[at:]))
            at = found.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if text[at] == ":" and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [*parts, text[begin:]]


def _operand(text: str) -> tuple[str, str]:
    found = _OPERAND.match(text)
    if found is None:
        raise UnknownInstructionError(f"with the operand {text!r}")
    return found[1], text[found.end() : -1]


class _Program(Warps, Matrices):
    """The instructions of one ``asm``, which share its operands and the registers that it declares."""

    def __init__(self) -> None:
        numbers = itertools.count()
        super().__init__(_REGISTERS, lambda: f"ptx_register_{next(numbers)}")

    def own(self, name: str, words: list[str], operands: list[str]) -> list[str] | None:
        if name in ("bar", "barrier") and words[:1] == ["sync"] and operands == ["0"]:
            return ["__syncthreads();"]
        if name == "trap":
            return ["__trap();"]
        if name == "createpolicy":  # how a cache treats what is read: there is none to tell
            return [self.write(operands[0], "0ull")]
        translation = {
            "ld": self._load,
            "st": self._store,
            "red": self._atomic,
            "atom": self._atomic_with_result,
            "cvta": self._address,
        }.get(name)
        return translation(words, operands) if translation else super().own(name, words, operands)

    def _pointer(self, address: str, words: list[str]) -> str:
        if words[-1] not in MEMORY:
            raise UnknownInstructionError
        where = "at_shared" if _SHARED & set(words) else "at"
        return f"{_HERE}::{where}<{TYPES[words[-1]]}>({self.address(address)})"

    def _load(self, words: list[str], operands: list[str]) -> list[str]:
        to, address = operands
        _only(words[:-1], ORDERS | _SPACES | CACHES | {"v2", "v4", "const"})
        read = "read_now" if {"acquire", "relaxed", "volatile"} & set(words) else "read"
        pointer = self._pointer(address, words)
        names = registers_of(to, words)
        # All before the first is written, which may be part of the address.
        reads = [f"const auto ptx_read{n} = {_HERE}::{read}({pointer} + {n});" for n in range(len(names))]
        writes = [self.write(each, f"ptx_read{n}") for n, each in enumerate(names)]
        return [f"{{ {' '.join([*reads, *writes])} }}"]

    def _store(self, words: list[str], operands: list[str]) -> list[str]:
        address, source = operands
        _only(words[:-1], ORDERS | _SPACES | CACHES | {"v2", "v4"})
        write = "write_now" if {"release", "relaxed", "volatile"} & set(words) else "write"
        pointer = self._pointer(address, words)
        values = [self.read(each, words[-1]) for each in registers_of(source, words)]
        return [f"{_HERE}::{write}({pointer} + {n}, {value});" for n, value in enumerate(values)]

    def _atomic(self, words: list[str], operands: list[str]) -> list[str]:
        return [f"{self._atomic_call(words, operands)};"]

    def _atomic_with_result(self, words: list[str], operands: list[str]) -> list[str]:
        return [self.write(operands[0], self._atomic_call(words, operands[1:]))]

    def _atomic_call(self, words: list[str], operands: list[str]) -> str:
        """Atomics of all orders and scopes are those of CUDA's functions, which order all others."""
        _only(words[:-1], ORDERS | _SPACES | set(_ATOMICS) | {"noftz"})
        functions = [_ATOMICS[word] for word in words if word in _ATOMICS]
        address, *values = operands
        if len(functions) != 1 or len(values) != (2 if functions == ["atomicCAS"] else 1):
            raise UnknownInstructionError
        given = ", ".join(self.read(value, words[-1]) for value in values)
        return f"{functions[0]}({self._pointer(address, words)}, {given})"

    def _address(self, words: list[str], operands: list[str]) -> list[str]:
        """Between kinds of addresses, of which only those of shared memory are others."""
        to, source = operands
        _only(words, _SPACES | {"to", "u32", "u64", "const"})
        address = self.address(source)
        if _SHARED & set(words):
            is_from_all = words[0] == "to"
            address = (
                f"::loom_cuda::shared_address({_HERE}::at<char>({address}))"
                if is_from_all
                else f"::loom_cuda::of_shared({address})"
            )
        return [self.write(to, address)]


def _only(words: list[str], allowed: set[str]) -> None:
    if set(words) - allowed:
        raise UnknownInstructionError


__all__ = ["UnknownInstructionError", "translated"]

"""Inline PTX of a warp's matrices and of packed registers, as calls of ``loom_cuda/matrices.h``."""

from __future__ import annotations

import re

_HERE = "::loom_cuda::ptx"
_FACTORS = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}  # bytes of each
_SUMS = {"f32": ("f32", 4), "s32": ("s32", 4), "f16": ("packed_f16", 2)}
_SHAPE = re.compile(r"m16n8k(\d+)")
_NAMES = re.compile(r"\b[xyz]\b")
_HALVES = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "fma": "fmaf(x, y, z)",
    "max": "fmaxf(x, y)",
    "min": "fminf(x, y)",
    "neg": "-x",
    "abs": "fabsf(x)",
    "ex2": "exp2f(x)",
    "tanh": "tanhf(x)",
}


class UnknownInstructionError(Exception):
    """An instruction that has no translation."""


def translated(opcode: str, kinds: list[str], given: list[str], text: str) -> str | None:
    """Return C++ for an instruction, or nothing if it is another one's.

    Args:
        opcode, kinds: its name, and the words behind it.
        given: its operands as C++; those of one in braces are joined by null characters.
        text: all of it, for errors.

    Raises:
        UnknownInstructionError: it is of this kind, but has no translation.
    """
    if opcode == "mma":
        return _product(kinds, given, text)
    if opcode == "ldmatrix":
        return _load(kinds, given, text)
    if opcode == "cp" and kinds[:1] == ["async"]:
        return _copy(kinds, given, text)
    if opcode == "lop3" and kinds == ["b32"] and len(given) == 5:
        return f"{given[0]} = {_HERE}::by_table({', '.join(given[1:])})"
    if (
        kinds[-1:] in (["f16x2"], ["f16"])
        and opcode in _HALVES
        and set(kinds[:-1]) <= {"rn", "approx", "ftz"}
    ):
        names = _NAMES.findall(_HALVES[opcode])
        if len(given) - 1 != len(set(names)):
            return None
        parameters = ", ".join(f"float {name}" for name in "xyz"[: len(set(names))])
        change = f"[]({parameters}) {{ return {_HALVES[opcode]}; }}"
        function = "of_halves" if kinds[-1] == "f16x2" else "of_half"
        return f"{_HERE}::set({given[0]}, {_HERE}::{function}({change}, {', '.join(given[1:])}))"
    return None


def _product(kinds: list[str], given: list[str], text: str) -> str:
    shape = next((found for kind in kinds if (found := _SHAPE.fullmatch(kind))), None)
    words = {"sync", "aligned", "row", "col", shape and shape[0]}
    if shape is None or set(kinds[:-4]) != words or len(given) != 4:
        raise UnknownInstructionError(repr(text))
    depth = int(shape[1])
    to, left, right, sums = kinds[-4:]
    if {left, right} - set(_FACTORS) or to not in _SUMS or sums != to or _FACTORS[left] != _FACTORS[right]:
        raise UnknownInstructionError(repr(text))
    name, num_sums = _SUMS[to]
    counts = [num_sums, 16 * depth * _FACTORS[left] // 128, 8 * depth * _FACTORS[right] // 128, num_sums]
    values = [one.split("\0") for one in given]
    if [len(one) for one in values] != counts or 0 in counts:
        raise UnknownInstructionError(repr(text))
    kind = f"{_HERE}::Product<{_HERE}::{left}, {_HERE}::{right}, {_HERE}::{name}, {depth}>"
    lists = (
        ", ".join(f"{_HERE}::bits({value})" for value in one) for one in (values[1], values[2], values[3])
    )
    filled = ", ".join(f"{{{one}}}" for one in lists)
    results = " ".join(
        f"{_HERE}::set({value}, ptx_own.sums[{number}]);" for number, value in enumerate(values[0])
    )
    return f"{{ {kind} ptx_own{{{filled}}}; {_HERE}::multiply(ptx_own); {results} }}"


def _load(kinds: list[str], given: list[str], text: str) -> str:
    count = next((int(kind[1:]) for kind in kinds if kind in ("x1", "x2", "x4")), 0)
    values = given[0].split("\0")
    if "m8n8" not in kinds or len(values) != count or "b8" in "".join(kinds):
        raise UnknownInstructionError(repr(text))
    is_transposed = "true" if "trans" in kinds else "false"
    results = " ".join(f"{_HERE}::set({value}, ptx_own.own[{i}]);" for i, value in enumerate(values))
    return (
        f"{{ {_HERE}::Rows<{count}, {is_transposed}> ptx_own{{}}; "
        f"{_HERE}::load_matrices(ptx_own, ::loom_cuda::of_shared({given[1]})); {results} }}"
    )


def _copy(kinds: list[str], given: list[str], text: str) -> str:
    """Copies are done at once: to wait for them is nothing."""
    if kinds[1] in ("commit_group", "wait_group", "wait_all"):
        return ""
    if "cache_hint" in kinds[-1]:
        given = given[:-1]
    sizes = all(value.isdigit() or value.startswith("ptx_") for value in given[2:])
    shared = kinds[2] in ("shared", "shared::cta")
    if kinds[1] not in ("ca", "cg") or not shared or not sizes or len(given) not in (3, 4):
        raise UnknownInstructionError(repr(text))
    to, source = f"::loom_cuda::of_shared({given[0]})", f"{_HERE}::at<const char>({given[1]})"
    return f"{_HERE}::copy({to}, {source}, {', '.join(given[2:])})"

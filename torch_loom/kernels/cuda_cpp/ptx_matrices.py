"""Inline PTX of a warp's matrices, as calls of ``loom_cuda/matrices.h``."""

from __future__ import annotations

import re

from torch_loom.kernels.ptx.instructions import UnknownInstructionError
from torch_loom.kernels.ptx.statements import Statements, list_of

_HERE = "::loom_cuda::ptx"
_FACTORS = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}  # bytes of each
_SUMS = {"f32": ("f32", 4), "s32": ("s32", 4), "f16": ("packed_f16", 2)}
_SHAPE = re.compile(r"m16n8k(\d+)")
_MOVED = re.compile(r"([%\w$]+)\s*\+\s*(-?\d+)")


class Matrices(Statements):
    """Instructions of tensor cores: products, and how their factors come from memory."""

    def own(self, name: str, words: list[str], operands: list[str]) -> list[str] | None:
        if name == "mma":
            return self._product(words, operands)
        if name == "ldmatrix":
            return self._load_matrices(words, operands)
        if name == "cp" and words[:1] == ["async"]:
            return self._copy(words, operands)
        return super().own(name, words, operands)

    def address(self, text: str) -> str:
        """Return C++ of an address, which is a pointer of the program's or a number."""
        text = text.strip("[] ")
        moved = _MOVED.fullmatch(text)
        found = self.variable(moved[1] if moved else text)
        if found is None:
            raise UnknownInstructionError
        return f"{_HERE}::behind({found}, {moved[2]})" if moved else found

    def _product(self, words: list[str], operands: list[str]) -> list[str]:
        shape = next((found for word in words if (found := _SHAPE.fullmatch(word))), None)
        *how, to, left, right, sums = words
        if shape is None or set(how) != {"sync", "aligned", "row", "col", shape[0]} or sums != to:
            raise UnknownInstructionError
        depth = int(shape[1])
        name, num_sums = _SUMS[to]
        if _FACTORS[left] != _FACTORS[right]:
            raise UnknownInstructionError
        counts = [num_sums, 16 * depth * _FACTORS[left] // 128, 8 * depth * _FACTORS[right] // 128, num_sums]
        results, *given = (list_of(text.strip("{}")) for text in operands)
        if [len(each) for each in (results, *given)] != counts or 0 in counts:
            raise UnknownInstructionError
        kind = f"{_HERE}::Product<{_HERE}::{left}, {_HERE}::{right}, {_HERE}::{name}, {depth}>"
        filled = ", ".join(
            f"{{{', '.join(self.read(value, 'b32') for value in values)}}}" for values in given
        )
        writes = " ".join(self.write(each, f"ptx_own.sums[{number}]") for number, each in enumerate(results))
        return [f"{{ {kind} ptx_own{{{filled}}}; {_HERE}::multiply(ptx_own); {writes} }}"]

    def _load_matrices(self, words: list[str], operands: list[str]) -> list[str]:
        to, address = operands
        count = next((int(word[1:]) for word in words if word in ("x1", "x2", "x4")), 0)
        names = list_of(to.strip("{}"))
        if "m8n8" not in words or len(names) != count or "b8" in "".join(words):
            raise UnknownInstructionError
        is_transposed = "true" if "trans" in words else "false"
        writes = " ".join(self.write(each, f"ptx_own.own[{number}]") for number, each in enumerate(names))
        row = f"::loom_cuda::of_shared({self.address(address)})"
        begin = f"{_HERE}::Rows<{count}, {is_transposed}> ptx_own{{}};"
        return [f"{{ {begin} {_HERE}::load_matrices(ptx_own, {row}); {writes} }}"]

    def _copy(self, words: list[str], operands: list[str]) -> list[str]:
        """Copies are done at once: to wait for them is nothing."""
        if words[1] in ("commit_group", "wait_group", "wait_all"):
            return []
        if "cache_hint" in words[-1]:
            operands = operands[:-1]
        to, source, *sizes = operands
        is_shared = words[2] in ("shared", "shared::cta")
        if words[1] not in ("ca", "cg") or not is_shared or len(sizes) not in (1, 2):
            raise UnknownInstructionError
        given = [
            f"{_HERE}::at<const char>({self.address(source)})",
            *(self.read(size, "u32") for size in sizes),
        ]
        return [f"{_HERE}::copy(::loom_cuda::of_shared({self.address(to)}), {', '.join(given)});"]

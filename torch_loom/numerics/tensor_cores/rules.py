"""How the matrix instructions of NVIDIA's chips add: one table, read by products, benchmarks and docs.

Source: MMA-Sim (microsoft/MMA-Sim c785138; arXiv 2511.10909), whose authors compared it with the cards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch_loom.errors import FormatError

# Numbers that the kernels take.
OPERANDS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 3, "e5m2": 4, "e2m1": 5}
SCALES = {"": 0, "ue8m0": 1, "ue4m3": 2}
FLOAT8 = ("e4m3", "e5m2")
ARCHITECTURES = ("Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell")
# K of an instruction, by operand; that of the first architectures, which have one.
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}
_SHALLOW = {"Volta": 4, "Turing": 8}


@dataclass(frozen=True)
class Rule:
    """One matrix instruction.

    All products of a step and the running sum are cut towards zero to multiples of 2^(largest exponent -
    `fraction_bits`) and added exactly. A float32 sum is cut to `kept_bits` of mantissa, a half is rounded to
    even.
    """

    a: str
    b: str
    sums: str
    fraction_bits: int
    kept_bits: int
    step: int
    """Products that are added at once."""
    depth: int
    """K of the instruction, a multiple of the step."""
    scale: str = ""
    scale_block: int = 0
    """Products that share a scale."""
    exact_group: int = 1
    """Products that are added exactly before anything is cut (FP4)."""

    @property
    def arguments(self) -> tuple[int, int, bool, int, int, int, int, int, int]:
        """The rule as the ops of ``loom_numerics`` take it."""
        return (
            OPERANDS[self.a],
            OPERANDS[self.b],
            self.sums == "f16",
            self.fraction_bits,
            self.kept_bits,
            self.step,
            SCALES[self.scale],
            self.scale_block,
            self.exact_group,
        )


def _plain(architecture: str, a: str, b: str, depth: int) -> tuple[int, int, int] | None:
    """Fraction bits, kept bits and step of an instruction without scales."""
    is_float8 = a in FLOAT8 and b in FLOAT8
    if not is_float8 and a != b:
        return None
    is_short = a in ("f16", "bf16")
    if architecture == "Volta":
        return (23, 23, 4) if a == "f16" else None
    if architecture == "Turing":
        return (24, 23, depth) if a == "f16" else None
    if architecture in ("Ampere", "Ada Lovelace"):
        if is_float8:
            return (13, 13, 16) if architecture == "Ada Lovelace" else None
        return (24, 23, 8 if is_short else 4) if is_short or a == "tf32" else None
    if is_float8:
        return (13, 13, depth) if architecture == "Hopper" else (25, 23, depth)
    return (25, 23, depth) if is_short or a == "tf32" else None


_QUALIFIER = re.compile(
    r"m\d+n\d+k(?P<depth>\d+)(?:\.block(?P<block>\d+))?\.(?P<sums>f16|f32)\.(?P<a>\w+)\.(?P<b>\w+)(?:\.(?P<last>\w+))?"
)


def instruction_rule(architecture: str, instruction: str, qualifier: str) -> Rule:
    """Return the rule of an instruction.

    Args:
        architecture: "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Turing" or "Volta".
        instruction: "mma", "wgmma", "tcgen05mma" or "tcgen05mma_block_scale".
        qualifier: its shape and types as PTX writes them: "m16n8k16.f32.f16.f16.f32".

    Raises:
        FormatError: there is no rule for it.
    """
    found = _QUALIFIER.fullmatch(qualifier)
    if found is None or architecture not in ARCHITECTURES:
        raise FormatError(
            f"tensor cores: no rule for {architecture} {instruction} {qualifier}; allowed: "
            f"{', '.join(ARCHITECTURES)} and qualifiers such as m16n8k16.f32.f16.f16.f32"
        )
    depth, a, b, sums = int(found["depth"]), found["a"], found["b"], found["sums"]
    if instruction.endswith("block_scale"):
        block, scale = int(found["block"] or 0), found["last"]
        if architecture == "Blackwell" and sums == "f32" and block and scale in SCALES and depth % block == 0:
            if a in FLOAT8 and b in FLOAT8 and (scale, block) == ("ue8m0", 32):
                return Rule(a, b, sums, 25, 23, depth, depth, scale, block)
            if (
                a == b == "e2m1"
                and (scale, block) in (("ue8m0", 32), ("ue8m0", 16), ("ue4m3", 16))
                and depth == 64
            ):
                return Rule(a, b, sums, 35, 23, depth, depth, scale, block, 16)
    elif instruction in ("mma", "wgmma", "tcgen05mma") and found["block"] is None:
        plain = _plain(architecture, a, b, depth) if a in OPERANDS and b in OPERANDS else None
        if plain is not None and depth % plain[2] == 0 and (sums == "f32" or a in ("f16", *FLOAT8)):
            return Rule(a, b, sums, *plain, depth)
    raise FormatError(f"tensor cores: no rule for {architecture} {instruction} {qualifier}")


def instruction_depth(architecture: str, operand: str) -> int:
    """Return K of the instructions that libraries and compilers take on an architecture."""
    return _SHALLOW.get(architecture, _DEPTHS[operand])


def block_rules(architecture: str) -> list[tuple[int, int, bool, bool, int, int, int, int, int, int]]:
    """Return how ``tl.dot`` of Triton's kernels multiplies on an architecture, as the extension takes it.

    Each row: the formats of the operands, whether a group of four warps multiplies them (wgmma,
    tcgen05.mma), whether they become halves first, then the instruction. What Triton's compiler takes for
    which block was compared on Hopper alone (H100, Triton 3.6).
    """
    rows = []
    float8 = [(a, b) for a in FLOAT8 for b in FLOAT8]
    for a, b in (("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), *float8):
        for is_group in (False, True):
            is_float8 = a in FLOAT8
            # Instructions of one warp take no FP8 before Ada, nor on Hopper.
            is_through_halves = is_float8 and (
                architecture == "Ampere" or (architecture == "Hopper" and not is_group)
            )
            left, right = ("f16", "f16") if is_through_halves else (a, b)
            depth = instruction_depth(architecture, left)
            plain = _plain(architecture, left, right, depth)
            if plain is not None:
                formats = (OPERANDS[a], OPERANDS[b], is_group, is_through_halves)
                rows.append((*formats, OPERANDS[left], OPERANDS[right], *plain, depth))
    return rows


# Elements of a result, up to which K goes in parts of so many products, and how many more for each product
# beyond 4096.
_PARTS = (
    (2**12, 1365, 0.0),
    (2**14, 1365, 0.033),
    (2**17, 1365, 0.05),
    (2**19, 4096, 0.0),
    (2**62, 8192, 0.0),
)


def usual_parts(rows: int, columns: int, depth: int) -> int:
    """Return in how many parts of K cuBLAS usually multiplies matrices of half precision on Hopper.

    Read off results of an H100 (cuBLAS of CUDA 13.0, K from 32 to 16384, results of 256 to 2^20 elements),
    each equal bit for bit with that many parts. Other versions of cuBLAS may choose otherwise, an H200 may,
    and batches of matrices were not looked at: they are not split.
    """
    if rows == 1 or columns == 1:
        return 2 if depth >= 8192 else 1
    _, part, growth = next(row for row in _PARTS if rows * columns <= row[0])
    return max(1, int(depth / (part + growth * max(0, depth - 4096))))

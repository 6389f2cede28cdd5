"""Instructions of inline PTX that compute, in one kernel, each beside NumPy or torch."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
import torch

import torch_loom.device as loom

Array = npt.NDArray[np.generic]

COUNT = 64
RANDOM = np.random.default_rng(0)
A, B, C = (RANDOM.integers(-(2**31), 2**31, COUNT).astype(np.int32) for _ in range(3))
A[:4] = (-(2**31), 2**31 - 1, 0, -1)
B[:4] = (-(2**31), 2**31 - 1, -1, -1)
W = RANDOM.integers(-(2**63), 2**63 - 1, COUNT)
X, Y = (3 * RANDOM.standard_normal(COUNT).astype(np.float32) for _ in range(2))
X[:8] = (np.nan, 1, np.inf, -np.inf, 0, -0.0, 1e-40, 3e38)
Y[:8] = (1, np.nan, 2, 2, 1, 1, 2, 2)
D = 1e5 * RANDOM.standard_normal(COUNT)
D[:5] = (np.nan, 1e300, -1e300, 1 + 2**-11 + 2**-40, 65519.999999999)  # not to be rounded twice
HALVES = 4 * RANDOM.standard_normal((3, COUNT, 2))
# As float the sum would be a tie.
HALVES[:, :2, 0] = [
    [1.7685546875, -0.7724609375],
    [-0.1529541015625, 0.036346435546875],
    [-2.302734375, 0.66943359375],
]
HP, HQ, HR = (one.astype(np.float16) for one in HALVES)
BP, BQ, BR = (torch.from_numpy(one).bfloat16() for one in HALVES)


def packed(pairs: Array | torch.Tensor) -> Array:
    """Two numbers of 16 bits in one register each."""
    given = pairs.contiguous().view(torch.int16).numpy() if isinstance(pairs, torch.Tensor) else pairs
    return np.ascontiguousarray(given).view(np.uint32)[:, 0]


# What stands for an operand in the instructions below: its constraint, type and values.
OPERANDS: dict[str, tuple[str, str, Array]] = {
    **{name: ("r", "int", one) for name, one in (("A", A), ("B", B), ("C", C))},
    **{name: ("f", "float", one) for name, one in (("X", X), ("Y", Y))},
    "W": ("l", "long long", W),
    "D": ("d", "double", D),
    **{name: ("r", "int", packed(one)) for name, one in (("HP", HP), ("HQ", HQ), ("HR", HR))},
    **{name: ("r", "int", packed(one)) for name, one in (("BP", BP), ("BQ", BQ), ("BR", BR))},
}
RESULTS = {"r": "unsigned", "f": "float", "d": "double", "l": "unsigned long long", "h": "unsigned short"}

UA, UB, UC, UW = A.view(np.uint32), B.view(np.uint32), C.view(np.uint32), W.view(np.uint64)
LA, LB, LC = A.astype(np.int64), B.astype(np.int64), C.astype(np.int64)
VA, VB = UA.astype(np.uint64), UB.astype(np.uint64)
X64, Y64 = X.astype(np.float64), Y.astype(np.float64)


def down(values: Array) -> Array:
    """Doubles as floats, towards zero."""
    nearest = values.astype(np.float32)
    return np.where(np.abs(nearest) > np.abs(values), np.nextafter(nearest, np.float32(0)), nearest)


def whole(values: Array, kind: type, of_nan: int) -> Array:
    """Numbers as the nearest of a type."""
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    kept = [of_nan if one != one else int(min(max(float(one), low), high)) for one in values]
    return np.array([min(max(one, low), high) for one in kept], kind)


def of_8_bits(dtype: torch.dtype, most: float) -> Array:
    pairs = torch.from_numpy(np.stack([Y, X], axis=1)).clamp(-most, most)
    return np.ascontiguousarray(pairs.to(dtype).view(torch.uint8).numpy()).view(np.uint16)[:, 0]


def of_bytes(kind: type) -> Array:
    left, right = A.view(kind).reshape(-1, 4), B.view(np.uint8).reshape(-1, 4)
    return (left.astype(np.int64) * right).sum(1) + LC


def compared(words: str, expected: Array) -> tuple[str, str, Array]:
    operands = "X, Y" if "f32" in words else "A, B"
    return f"{{ .reg .pred p; setp.{words} p, {operands}; selp.u32 %0, 1, 0, p; }}", "r", expected


IS_NAN = np.isnan(X) | np.isnan(Y)
with np.errstate(all="ignore"):
    CASES: list[tuple[str, str, Array]] = [
        # Whole numbers wrap around.
        ("add.s32 %0, A, B;", "r", A + B),
        ("sub.u32 %0, A, B;", "r", UA - UB),
        ("neg.s32 %0, A;", "r", -A),
        ("abs.s32 %0, A;", "r", np.abs(A)),
        ("mul.lo.s32 %0, A, B;", "r", A * B),
        ("mul.hi.s32 %0, A, B;", "r", (LA * LB) >> 32),
        ("mul.hi.u32 %0, A, B;", "r", (VA * VB) >> np.uint64(32)),
        ("mul.hi.u64 %0, W, W;", "l", np.array([int(one) ** 2 >> 64 for one in UW], np.uint64)),
        ("mul.wide.s32 %0, A, B;", "l", LA * LB),
        ("mul.wide.u32 %0, A, B;", "l", VA * VB),
        ("mad.lo.s32 %0, A, B, C;", "r", A * B + C),
        ("mad.hi.s32 %0, A, B, C;", "r", ((LA * LB) >> 32) + LC),
        ("mad.wide.s32 %0, A, B, W;", "l", LA * LB + W),
        ("mad.wide.u32 %0, A, B, W;", "l", VA * VB + UW),
        ("mul24.lo.u32 %0, A, B;", "r", (VA & np.uint64(0xFFFFFF)) * (VB & np.uint64(0xFFFFFF))),
        ("sad.s32 %0, A, B, C;", "r", np.abs(LA - LB) + LC),
        ("div.s32 %0, A, 7;", "r", np.trunc(LA / 7).astype(np.int64)),
        ("div.s32 %0, A, 0;", "r", np.full_like(LA, -1)),
        ("rem.u32 %0, A, 0;", "r", np.full_like(LA, -1)),
        ("rem.s32 %0, A, 7;", "r", np.fmod(LA, 7)),
        ("min.s32 %0, A, B;", "r", np.minimum(A, B)),
        ("max.u32 %0, A, B;", "r", np.maximum(UA, UB)),
        # Bits.
        ("and.b32 %0, A, B;", "r", A & B),
        ("xor.b64 %0, W, 0xFF;", "l", W ^ 255),
        ("not.b32 %0, A;", "r", ~A),
        ("shl.b32 %0, A, B;", "r", np.where(UB < 32, LA << (LB & 31), 0)),
        ("shr.u32 %0, A, 40;", "r", np.zeros(COUNT)),
        ("shr.s32 %0, A, 40;", "r", A >> 31),
        ("shr.u64 %0, W, 33;", "l", UW >> np.uint64(33)),
        ("popc.b64 %0, W;", "r", np.array([int(one).bit_count() for one in UW])),
        ("clz.b32 %0, A;", "r", np.array([32 - int(one).bit_length() for one in UA])),
        ("brev.b32 %0, A;", "r", np.array([int(f"{one:032b}"[::-1], 2) for one in UA])),
        ("bfe.u32 %0, A, 4, 7;", "r", (UA >> 4) & 127),
        ("bfe.s32 %0, A, 24, 8;", "r", A >> 24),
        ("bfi.b32 %0, A, B, 8, 8;", "r", (B & ~0xFF00) | ((A & 255) << 8)),
        ("prmt.b32 %0, A, B, 0x7610;", "r", (UA & 0xFFFF) | (UB & 0xFFFF0000)),
        ("lop3.b32 %0, A, B, C, 0xea;", "r", (A & B) | C),
        ("shf.l.wrap.b32 %0, A, B, 37;", "r", (LB << 32 | UA) >> 27),
        ("shf.r.clamp.b32 %0, A, B, 40;", "r", B),
        ("dp4a.s32.u32 %0, A, B, C;", "r", of_bytes(np.int8)),
        ("dp4a.u32.u32 %0, A, B, C;", "r", of_bytes(np.uint8)),
        ("slct.f32.s32 %0, X, Y, C;", "f", np.where(C >= 0, X, Y)),
        # Real numbers.
        ("add.sat.f32 %0, X, Y;", "f", np.nan_to_num(np.clip(X + Y, 0, 1))),
        ("mul.rz.f32 %0, X, Y;", "f", down(X64 * Y64)),
        ("div.rn.f32 %0, X, Y;", "f", X / Y),
        ("fma.rn.f32 %0, X, Y, Y;", "f", (X64 * Y64 + Y64).astype(np.float32)),
        ("fma.rn.f64 %0, D, 2.0, 0d3FF0000000000000;", "d", D * 2 + 1),
        # The product is rounded before the sum begins.
        ("{ .reg .f32 t; mul.rn.f32 t, X, Y; sub.rn.f32 %0, t, Y; }", "f", X * Y - Y),
        ("{ .reg .f32 t; mul.rn.ftz.f32 t, Y, Y; sub.rn.ftz.f32 %0, t, Y; }", "f", Y * Y - Y),
        ("max.f32 %0, X, Y;", "f", np.fmax(X, Y)),
        ("max.NaN.f32 %0, X, Y;", "f", np.maximum(X, Y)),
        ("min.NaN.f32 %0, X, Y;", "f", np.minimum(X, Y)),
        ("min.xorsign.abs.f32 %0, X, Y;", "f", np.copysign(np.fmin(abs(X), abs(Y)), X * np.sign(Y))),
        (
            "{ .reg .f32 t; max.f32 t, X, 0f80000000; mov.b32 %0, t; }",
            "r",
            np.where((X >= 0) & ~np.signbit(X), X, np.float32(-0.0)).view(np.uint32),
        ),
        ("copysign.f32 %0, X, Y;", "f", np.copysign(Y, X)),
        ("neg.f32 %0, X;", "f", -X),
        ("abs.f64 %0, D;", "d", np.abs(D)),
        (
            "{ .reg .b32 n; shr.s32 n, A, 24; .reg .f32 t; cvt.rn.f32.s32 t, n; ex2.approx.f32 %0, t; }",
            "f",
            np.ldexp(np.float32(1), A >> 24),
        ),
        ("sqrt.rn.f32 %0, X;", "f", np.sqrt(X)),
        ("mov.b32 %0, 0f40490FDB;", "r", np.full(COUNT, 0x40490FDB)),
        # Comparisons.
        compared("lt.f32", X < Y),
        compared("ne.f32", (X < Y) | (X > Y)),
        compared("neu.f32", X != Y),
        compared("equ.ftz.f32", ~((X < Y) | (X > Y))),
        compared("geu.f32", ~(X < Y)),
        compared("nan.f32", IS_NAN),
        compared("num.f32", ~IS_NAN),
        compared("lt.s32", A < B),
        compared("hs.u32", UA >= UB),
        ("set.gt.u32.f32 %0, X, Y;", "r", np.where(X > Y, -1, 0)),
        ("set.gt.f32.s32 %0, A, B;", "f", (A > B).astype(np.float32)),
        (
            "{ .reg .pred p, q; setp.gt.s32 q, A, 0; setp.lt.xor.s32 p, A, B, !q; selp.s32 %0, A, B, p; }",
            "r",
            np.where((A < B) ^ ~(A > 0), A, B),
        ),
        (
            "{ .reg .pred p; setp.lt.s32 p, A, B; mov.b32 %0, A; @!p mov.b32 %0, B; @p add.s32 %0, %0, 1; }",
            "r",
            np.where(A < B, LA + 1, LB),
        ),
        # Conversions.
        ("cvt.rni.s32.f32 %0, X;", "r", whole(np.rint(X), np.int32, 0)),
        ("cvt.rzi.u32.f32 %0, Y;", "r", whole(np.trunc(Y), np.uint32, 0)),
        ("cvt.rmi.s64.f64 %0, D;", "l", whole(np.floor(D), np.int64, -(2**63))),
        ("cvt.rpi.f32.f32 %0, X;", "f", np.ceil(X)),
        ("cvt.rn.f32.s32 %0, A;", "f", A.astype(np.float32)),
        ("cvt.rz.f32.u32 %0, A;", "f", down(UA.astype(np.float64))),
        ("cvt.rn.f32.u64 %0, W;", "f", UW.astype(np.float32)),
        ("cvt.sat.f32.f32 %0, X;", "f", np.nan_to_num(np.clip(X, 0, 1))),
        ("cvt.rn.f16.f32 %0, X;", "h", X.astype(np.float16).view(np.uint16)),
        ("cvt.rn.f16.f64 %0, D;", "h", D.astype(np.float16).view(np.uint16)),
        ("{ .reg .b16 h; cvt.rn.f16.f32 h, Y; cvt.f32.f16 %0, h; }", "f", Y.astype(np.float16)),
        ("cvt.rz.f32.f64 %0, D;", "f", down(D)),
        (
            "cvt.rna.tf32.f32 %0, Y;",
            "r",
            np.where(np.isnan(Y), Y.view(np.uint32), (Y.view(np.uint32) + 0x1000) & 0xFFFFE000),
        ),
        ("cvt.s8.s32 %0, A;", "r", A.astype(np.int8).astype(np.int64)),
        ("cvt.u16.u32 %0, A;", "r", A.astype(np.uint16)),
        ("cvt.sat.u8.s32 %0, A;", "r", np.clip(A, 0, 255)),
        ("cvt.s64.s32 %0, A;", "l", LA),
        ("cvt.rn.f16x2.f32 %0, X, Y;", "r", packed(np.stack([Y, X], axis=1).astype(np.float16))),
        (
            "cvt.rn.bf16x2.f32 %0, X, X;",
            "r",
            np.where(np.isnan(X), 0x7FFF7FFF, packed(torch.from_numpy(np.stack([X, X], axis=1)).bfloat16())),
        ),
        (
            "{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, X, Y; cvt.u32.u16 %0, t; }",
            "r",
            of_8_bits(torch.float8_e4m3fn, 448),
        ),
        (
            "{ .reg .b16 t; cvt.rn.satfinite.e5m2x2.f32 t, X, Y; cvt.u32.u16 %0, t; }",
            "r",
            of_8_bits(torch.float8_e5m2, 57344),
        ),
        # Two in a register.
        ("add.f16x2 %0, HP, HQ;", "r", packed(HP + HQ)),
        ("mul.rn.f16x2 %0, HP, HQ;", "r", packed(HP * HQ)),
        (
            "fma.rn.f16x2 %0, HP, HQ, HR;",
            "r",
            packed((HP.astype(np.float64) * HQ + HR).astype(np.float16)),
        ),
        ("max.f16x2 %0, HP, HQ;", "r", packed(np.maximum(HP, HQ))),
        ("max.f16x2 %0, HP, 0x7e007e00;", "r", packed(HP)),
        ("max.NaN.f16x2 %0, HP, 0x7e007e00;", "r", np.full(COUNT, 0x7E007E00)),
        ("neg.f16x2 %0, HP;", "r", packed(-HP)),
        ("add.rn.bf16x2 %0, BP, BQ;", "r", packed(BP + BQ)),
        ("fma.rn.bf16x2 %0, BP, BQ, BR;", "r", packed((BP.double() * BQ.double() + BR.double()).bfloat16())),
        # Registers taken apart and put together, scopes, comments.
        ("{ .reg .b32 part<2>; mov.b64 {part0, part1}, W; xor.b32 %0, part0, part1; }", "r", W ^ (W >> 32)),
        ("mov.b64 %0, {A, B};", "l", LB << 32 | UA),
        ("{ .reg .b16 h<2>; mov.b32 {h0, h1}, A; mov.b32 %0, {h1, h0}; }", "r", UA >> 16 | UA << 16),
        (
            "{ .reg .b8 n; cvt.u8.u32 n, A; mov.b32 %0, {n, n, n, n}; }",
            "r",
            (VA & np.uint64(255)) * np.uint64(0x01010101),
        ),
        ("{ .reg .b32 t; mov.b32 t, A; { .reg .b32 t; mov.b32 t, B; } mov.b32 %0, t; }", "r", A),
        ("/* not %0, A; */ mov.b32 %0, B; // nor this", "r", B),
        ("mov.u32 %0, %%tid.x;", "r", np.arange(COUNT)),
    ]


# Names of the program's own, which those of the translation must not mean.
SOURCE = """
struct f16 {{}};
struct e2m1 {{}};
template <typename T> __device__ T fma(T a) {{ return a; }}
__device__ int as, put, part_of;
__global__ void all({parameters}, unsigned long long* out) {{
  const int t = threadIdx.x;
  int in_pairs = 0, toward_zero = 0, ptx_whole = 0;
{lines}
}}
"""
LINE = """  {{ {kind} r{{}}; asm volatile({text} : "={constraint}"(r) : {inputs});
    unsigned long long bits = 0; memcpy(&bits, &r, sizeof r); out[{number} * {count} + t] = bits; }}"""


def source() -> str:
    """Return a kernel that keeps the result of each instruction, in a row of its own."""
    numbers = {name: f"%{number}" for number, name in enumerate(OPERANDS, 1)}
    inputs = ", ".join(f'"{constraint}"({name}[t])' for name, (constraint, _, _) in OPERANDS.items())
    lines = []
    for number, (text, constraint, _) in enumerate(CASES):
        filled = re.sub(r"\b[A-Z]{1,2}\b", lambda found: numbers[found[0]], text)
        lines.append(
            LINE.format(
                kind=RESULTS[constraint],
                constraint=constraint,
                text=f'"{filled}"',
                inputs=inputs,
                number=number,
                count=COUNT,
            )
        )
    parameters = ", ".join(f"const {kind}* {name}" for name, (_, kind, _) in OPERANDS.items())
    return SOURCE.format(parameters=parameters, lines="\n".join(lines))


@pytest.mark.long
def test_instructions() -> None:
    out = torch.zeros(len(CASES), COUNT, dtype=torch.int64, device="loom")
    given = [torch.from_numpy(values.copy()).to("loom") for _, _, values in OPERANDS.values()]
    loom._compile_kernel(source(), "all")((1,), (COUNT,), (*given, out))
    wrong = []
    for (text, constraint, expected), row in zip(CASES, out.cpu().numpy(), strict=True):
        if constraint in "fd":
            kind, bits = (np.float32, np.uint32) if constraint == "f" else (np.float64, np.uint64)
            found, wanted = row.astype(bits).view(kind), expected.astype(kind)
            is_equal = np.array_equal(found, wanted, equal_nan=True)
        else:
            mask = {"r": 2**32 - 1, "h": 2**16 - 1, "l": 2**64 - 1}[constraint]
            found, wanted = row, [int(one) & mask for one in expected]
            is_equal = [int(one) & mask for one in row] == wanted
        if not is_equal:
            first = next(n for n in range(COUNT) if found[n] != wanted[n] and found[n] == found[n])
            wrong.append(f"{text}: {found[first]} and not {wanted[first]}, of element {first}")
    assert not wrong, "\n".join(wrong)

# Instructions of PTX in Triton's kernels, on one element and on several at once, beside PyTorch on the host.
import torch
import triton
import triton.language as tl

from torch_loom.errors import UnsupportedKernelError

DRAWN = torch.Generator().manual_seed(0)


@triton.jit
def run(
    x_ptr,
    y_ptr,
    z_ptr,
    out_ptr,
    n: tl.constexpr,
    text: tl.constexpr,
    registers: tl.constexpr,
    pack: tl.constexpr,
):
    at = tl.arange(0, n)
    given = [tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at)]
    out = tl.inline_asm_elementwise(
        text, registers, given, dtype=out_ptr.dtype.element_ty, is_pure=True, pack=pack
    )
    tl.store(out_ptr + at, out)


@triton.jit
def shifted(x_ptr, y_ptr, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.inline_asm_elementwise(
        "ld.global.b8 $0, [$1]; shl.b32 $0, $0, 3; st.global.b8 [$2], $0;",
        "=r,l,l",
        [x_ptr + at, y_ptr + at],
        dtype=tl.int8,
        is_pure=False,
        pack=1,
    )


@triton.jit
def divided(a0, a1, b0, b1):
    return a0 // b0, a1 // b1, a0 % b0, a1 % b1


@triton.jit
def clipped(a, b):
    if a > b:
        return b, 1
    if a < -b:
        return -b, -1
    return a, 0


@triton.jit
def mapped(x_ptr, y_ptr, out_ptr, other_ptr, n: tl.constexpr, pack: tl.constexpr):
    at = tl.arange(0, n)
    if pack == 2:
        out, other = tl.map_elementwise(divided, tl.load(x_ptr + at), tl.load(y_ptr + at), pack=2)
    else:
        out, other = tl.map_elementwise(clipped, tl.load(x_ptr + at), tl.load(y_ptr + at))
    tl.store(out_ptr + at, out)
    tl.store(other_ptr + at, other)


def computed(text, registers, x, y=None, z=None, *, to=None, pack=1):
    given = [one.cuda() for one in (x, x if y is None else y, x if z is None else z)]
    out = torch.zeros(len(x), dtype=to or x.dtype, device="cuda")
    run[(1,)](*given, out, len(x), text, registers or "=r,r,r,r", pack)
    return out.cpu()


def whole():
    return torch.randint(-(2**31), 2**31 - 1, (64,), generator=DRAWN, dtype=torch.int64).to(torch.int32)


def real():
    return torch.randn(64, generator=DRAWN) * 3


def bytes_of(x):
    return x.view(torch.uint8).view(-1, 4)


a, b, c = whole(), whole(), whole()
expected = torch.stack([bytes_of(a)[:, 0], bytes_of(b)[:, 0], bytes_of(a)[:, 1], bytes_of(b)[:, 1]], dim=1)
assert torch.equal(bytes_of(computed("prmt.b32 $0, $1, $2, 0x5140;", "", a, b)), expected)
assert torch.equal(computed("lop3.b32 $0, $1, $2, $3, 0xea;", "", a, b, c), (a & b) | c)
assert torch.equal(computed("bfe.u32 $0, $1, 4, 7;", "", a), (a >> 4) & 127)
assert torch.equal(computed("bfe.s32 $0, $1, 24, 8;", "", a), a >> 24)
assert torch.equal(computed("bfi.b32 $0, $1, $2, 8, 8;", "", a, b), (b & ~0xFF00) | ((a & 255) << 8))
high = ((a.long() * b.long()) >> 32).int()
assert torch.equal(computed("mul.hi.s32 $0, $1, $2;", "", a, b), high)
wide = (
    "{ .reg .s64 t; .reg .b32 part<2>; mul.wide.s32 t, $1, $2;"
    " mov.b64 {part0, part1}, t; mov.b32 $0, part1; }"
)
assert torch.equal(computed(wide, "", a, b), high)
funnel = (((b.long() << 32) | (a.long() & 0xFFFFFFFF)) >> 9).to(torch.int32)
assert torch.equal(computed("shf.r.clamp.b32 $0, $1, $2, 9;", "", a, b), funnel)
assert torch.equal(computed("mov.u32 $0, %ctaid.x;", "", a), torch.zeros_like(a))
assert torch.equal(computed("cvt.s8.s32 $0, $1;", "", a), a.to(torch.int8).int())
tied = computed("add.s32 $0, $0, $2;", "=r,0,r,r", a, b)
assert torch.equal(tied, a + b)
scoped = "{ .reg .b32 t; mov.b32 t, $1; { .reg .b32 t; mov.b32 t, $2; } mov.b32 $0, t; }"
assert torch.equal(computed(scoped, "", a, b), a)
added = (
    "{ .reg .u64 t, c; mov.b64 c, {0, $3}; mad.wide.u32 t, $1, $2, c; shr.u64 t, t, 32; cvt.u32.u64 $0, t; }"
)
product = ((a.long() & 0xFFFFFFFF) * (b.long() & 0xFFFFFFFF)) >> 32
assert torch.equal(computed(added, "", a, b, c), (product + c.long()).to(torch.int32))

x, y = real(), real()
chosen = (
    "{ .reg .pred p, q; setp.gt.f32 p, $1, $2; setp.lt.and.f32 q, $1, 0f40000000, p;"
    " mov.f32 $0, $2; @q mov.f32 $0, $1; }"
)
assert torch.equal(computed(chosen, "=f,f,f,f", x, y), torch.where((x > y) & (x < 2), x, y))
nan = torch.where(x > 0, x, torch.nan)
assert torch.equal(computed("max.f32 $0, $1, $2;", "=f,f,f,f", nan, y), torch.fmax(nan, y))
assert torch.equal(computed("max.NaN.f32 $0, $1, $2;", "=f,f,f,f", nan, y).isnan(), nan.isnan())
assert torch.equal(computed("add.sat.f32 $0, $1, 0f00000000;", "=f,f,f,f", x), x.clamp(0, 1))
for rounding, expected in (("rni", x.round()), ("rzi", x.trunc()), ("rmi", x.floor()), ("rpi", x.ceil())):
    assert torch.equal(
        computed(f"cvt.{rounding}.s32.f32 $0, $1;", "=r,f,f,f", x, to=torch.int32), expected.int()
    )

exact = torch.full_like(x, 2.0**-127)
scale = computed(
    "{ .reg .b16 t; cvt.rp.satfinite.ue8m0x2.f32 t, $1, $1; cvt.u32.u16 $0, t; }",
    "=r,f,f,f",
    exact,
    to=torch.int32,
)
assert torch.equal(scale, torch.zeros_like(scale))

# Several elements share a register.
for dtype, word in ((torch.float16, "f16x2"), (torch.bfloat16, "bf16x2")):
    p, q = x.to(dtype), y.to(dtype)
    found = computed(f"fma.rn.{word} $0, $1, $2, $2;", "", p, q, pack=2)
    assert torch.equal(found, (p.float() * q.float() + q.float()).to(dtype))
found = computed("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r,r,r,r,r", x, to=torch.bfloat16, pack=2)
assert torch.equal(found, x.bfloat16())
eight = "{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $2, $1; cvt.u32.u16 $0, t; }"
found = computed(eight, "=r,f,f,f,f,f,f", x, to=torch.uint8, pack=2)
assert torch.equal(found, x.to(torch.float8_e4m3fn).view(torch.uint8))
four = "{ .reg .b8 r; cvt.rn.satfinite.e2m1x2.f32 r, $2, $1; mov.b32 $0, {r, r, r, r}; }"
found = computed(four, "=r,f,f,f,f,f,f", x, to=torch.uint8, pack=2)
magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
nearest = magnitudes[(x.abs()[:, None] - magnitudes).abs().argmin(1)].copysign(x)
codes = torch.stack([found[::2] & 15, found[::2] >> 4], dim=1).flatten().long()
assert torch.equal(magnitudes[codes % 8].copysign(torch.where(codes > 7, -1.0, 1.0)), nearest)

# Rounded by chance: with no bits set toward zero, with all set away from it unless the number is exact.
chance = "{ .reg .b16 r; cvt.rs.satfinite.e2m1x4.f32 r, {$1, $1, $1, $1}, BITS; mov.b32 $0, {r, r}; }"
for bits, is_up in (("0", False), ("-1", True)):
    found = computed(chance.replace("BITS", bits), "=r,f,f,f", x, to=torch.int32) & 15
    rounded = magnitudes[found.long() % 8].copysign(torch.where(found > 7, -1.0, 1.0))
    farther = rounded.abs() - x.abs().clamp(max=6)
    assert torch.all(farther >= -1 / 64) if is_up else torch.all(farther <= 0)
    assert torch.all((rounded - x.clamp(-6, 6)).abs() <= 2)
found = computed("cvt.rs.f16x2.f32 $0, $1, $1, 0;", "=r,f,f,f", x, to=torch.int32)
lower = (found & 0xFFFF).short().view(torch.int16).view(torch.float16).float()
assert torch.all(lower.abs() <= x.abs())
assert torch.allclose(lower, x, rtol=2**-10)

source = torch.arange(16, dtype=torch.int8)
target = torch.zeros(16, dtype=torch.int8, device="cuda")
shifted[(1,)](source.cuda(), target, 16)
assert torch.equal(target.cpu(), source << 3)

out, other = (
    torch.zeros(64, dtype=torch.int32, device="cuda"),
    torch.zeros(64, dtype=torch.int32, device="cuda"),
)
d = torch.randint(1, 99, (64,), generator=DRAWN, dtype=torch.int32)
mapped[(1,)](a.abs().cuda(), d.cuda(), out, other, 64, 2)
assert torch.equal(out.cpu(), a.abs() // d)
assert torch.equal(other.cpu(), a.abs() % d)
small = a % 200
mapped[(1,)](small.cuda(), d.cuda(), out, other, 64, 1)
assert torch.equal(out.cpu(), torch.clamp(small, -d, d))
assert torch.equal(other.cpu(), (small > d).int() - (small < -d).int())

for refused in (
    "vabsdiff4.u32.u32.u32 $0, $1, $2, $3;",
    "add.cc.u32 $0, $1, $2;",
    "add.rz.f32 $0, $1, $2;",
    "mul.s32 $0, $1, $2;",
    "max.s32 $0, $1, $2, $3;",
    "ld.shared.b32 $0, [$1];",
    "bra away;",
):
    try:
        computed(refused, "", a, b, c)
    except Exception as error:
        while error is not None and not isinstance(error, UnsupportedKernelError):
            error = error.__cause__
        assert refused.split()[0] in str(error), error
    else:
        raise AssertionError(refused)

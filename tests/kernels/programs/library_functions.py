# Functions of NVIDIA's library in Triton's kernels, beside PyTorch on the host.
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

NAMES = ("below", "above", "i0", "i1", "quantile", "norm", "root", "towards_zero", "fast")


@triton.jit
def call(x_ptr, m_ptr, real_ptr, whole_ptr, n: tl.constexpr):
    at = tl.arange(0, n)
    x, m = tl.load(x_ptr + at), tl.load(m_ptr + at)
    tl.store(real_ptr + at, libdevice.div_rd(x, x * 0 + 3))
    tl.store(real_ptr + n + at, libdevice.div_ru(x, x * 0 + 3))
    tl.store(real_ptr + 2 * n + at, libdevice.cyl_bessel_i0(x))
    tl.store(real_ptr + 3 * n + at, libdevice.cyl_bessel_i1(x))
    tl.store(real_ptr + 4 * n + at, libdevice.normcdfinv(tl.sigmoid(x)))
    tl.store(real_ptr + 5 * n + at, libdevice.norm3d(x, x, x))
    tl.store(real_ptr + 6 * n + at, libdevice.rcbrt(tl.abs(x)))
    tl.store(real_ptr + 7 * n + at, libdevice.ll2float_rz(m.to(tl.int64)))
    tl.store(real_ptr + 8 * n + at, libdevice.fast_expf(x))
    tl.store(whole_ptr + at, libdevice.brev(libdevice.brev(m)))
    tl.store(whole_ptr + n + at, libdevice.byte_perm(m, m, m * 0 + 0x3210))
    tl.store(whole_ptr + 2 * n + at, libdevice.float2int_rd(x))
    tl.store(whole_ptr + 3 * n + at, libdevice.hadd(m, m))


drawn = torch.Generator().manual_seed(0)
x = torch.randn(64, generator=drawn) * 5
m = torch.randint(-(2**31), 2**31 - 1, (64,), generator=drawn).int()
real = torch.zeros(len(NAMES), 64, device="cuda")
whole = torch.zeros(4, 64, dtype=torch.int32, device="cuda")
call[(1,)](x.cuda(), m.cuda(), real, whole, 64)
found = dict(zip(NAMES, real.cpu(), strict=True))

third = x.double() / 3
assert (found["below"].double() <= third).all() and (found["above"].double() >= third).all()
assert (found["above"] - found["below"] > 0).any()
torch.testing.assert_close(found["i0"], torch.special.i0(x))
torch.testing.assert_close(found["i1"], torch.special.i1(x))
quantile = torch.special.ndtri(x.sigmoid().double()).float()
torch.testing.assert_close(found["quantile"], quantile, rtol=1e-3, atol=1e-3)
torch.testing.assert_close(found["norm"], x.abs() * 3**0.5)
torch.testing.assert_close(found["root"], x.abs() ** (-1 / 3))
assert (found["towards_zero"].double().abs() <= m.double().abs()).all()
torch.testing.assert_close(found["fast"], x.exp(), rtol=1e-5, atol=1e-6)
for row, expected in zip(whole.cpu(), (m, m, x.floor().int(), m), strict=True):
    assert torch.equal(row, expected)

# Exponentials of Triton's kernels over all of float32's range, beside PyTorch's in float64.
import torch
import triton
import triton.language as tl


@triton.jit
def powers(x_ptr, of_2_ptr, of_e_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(of_2_ptr + at, tl.exp2(x), mask=at < n)
    tl.store(of_e_ptr + at, tl.exp(x), mask=at < n)


parts = [torch.linspace(*ends, 20001) for ends in ((-130, -124), (-126.001, -125.999), (-89, -85), (86, 129))]
special = torch.tensor([torch.inf, -torch.inf, torch.nan, -1e30, 1e30, 0.0, -0.0])
x = torch.cat([*parts, special]).cuda()
of_2, of_e = torch.empty_like(x), torch.empty_like(x)
powers[(triton.cdiv(x.numel(), 1024),)](x, of_2, of_e, x.numel(), 1024)

exact = x.cpu().double()
for found, expected in ((of_2, exact.exp2()), (of_e, exact.exp())):
    found = found.cpu().double()
    is_subnormal, is_infinite = expected < 2.0**-126, expected >= 2.0**128
    assert (found[is_subnormal] == 0).all() and (found[is_infinite] == torch.inf).all()
    assert torch.equal(found.isnan(), exact.isnan())
    rest = ~(is_subnormal | is_infinite | exact.isnan())
    torch.testing.assert_close(found[rest], expected[rest], rtol=3e-7, atol=0)

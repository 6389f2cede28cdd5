import torch
import torch.nn.functional as F

import torch_loom  # noqa: F401
from tests.raising import raises

# A value on the border of two bins: 29 / 100 * 100 is less than 29.
counts = torch.histc(torch.tensor([29, 58, 100, 101, -1], device="cuda"), 100, 0, 100)
assert counts.dtype == torch.int64 and counts.nonzero().flatten().tolist() == [29, 58, 99]
assert torch.histc(torch.tensor([3, 5], dtype=torch.uint8, device="cuda"), 2).tolist() == [1, 1]
assert torch.histc(torch.tensor([4], device="cuda"), 3).tolist() == [0, 1, 0]
assert torch.histc(torch.empty(0, dtype=torch.int32, device="cuda"), 3).tolist() == [0, 0, 0]
out = torch.empty(0, dtype=torch.int64, device="cuda")
assert torch.histc(torch.arange(4, device="cuda"), 2, 0, 3, out=out) is out and out.tolist() == [2, 2]
raises("RuntimeError", "max must be larger than min", lambda: torch.histc(counts, 3, 2, 1))

# Sums of complex numbers, without those of which a part is not a number.
z = torch.tensor([[1 + 2j, complex("nan"), 3j]], device="cuda", requires_grad=True)
assert torch.nansum(z).item() == 1 + 5j and torch.nansum(z, 0, keepdim=True).shape == (1, 3)
torch.nansum(z).abs().backward()
assert z.grad[0, 1] == 0 and z.grad[0, 0] != 0
half_z = z.detach().to(torch.complex32)
assert torch.nansum(half_z).dtype == torch.complex32 and torch.nansum(half_z).item() == 1 + 5j
assert torch.nansum(z, dtype=torch.complex128).dtype == torch.complex128
for add in (torch.sum, torch.prod, torch.nansum):
    assert add(half_z, dtype=torch.complex64).dtype == torch.complex64
    assert add(half_z, dtype=torch.complex32).dtype == torch.complex32
assert (
    torch.full((1,), 300 + 0j, dtype=torch.complex32, device="cuda").expand(999).sum(dtype=torch.complex64)
    == 299_700
)

# Transforms of half precision: only of sizes that are powers of two, as cuFFT.
x = torch.randn(4, 8, device="cuda", dtype=torch.float16, requires_grad=True)
y = torch.fft.rfft2(x)
assert y.dtype == torch.complex32
back = torch.fft.irfft2(y)
torch.testing.assert_close(back, x, atol=1e-2, rtol=0)
back.sum().backward()
assert x.grad.dtype == torch.float16 and x.grad.shape == x.shape
raises(
    "RuntimeError",
    "powers of two when computing in half precision, but got a signal size of[7]",
    lambda: torch.fft.fft(torch.ones(7, dtype=torch.float16, device="cuda")),
)
assert torch.fft.fft(torch.ones(7, device="cuda")).shape == (7,)

# Written operands.
c = torch.full((3,), 1 + 1j, dtype=torch.complex32, device="cuda")
same = c.sqrt_()
assert same is c and c.dtype == torch.complex32
torch.testing.assert_close(
    torch.view_as_real(c)[:, 0].float().cpu(), torch.full((3,), 1.0987), atol=1e-3, rtol=0
)
out = torch.empty(0, dtype=torch.complex32, device="cuda")
assert torch.exp(c, out=out) is out and out.shape == (3,)
raises(
    "RuntimeError",
    "can't be cast to the desired output type",
    lambda: torch.exp(c, out=torch.empty(3, device="cuda")),
)
c /= 2
assert (c + 1).dtype == torch.complex32 and torch.angle(c).dtype == torch.float16
flag = torch.tensor([True, False], device="cuda")
assert torch.abs(flag).dtype == torch.bool and F.softsign(flag).dtype == torch.float32
# Lists of such tensors.
assert [t.dtype for t in torch._foreach_abs([flag, flag])] == [torch.bool] * 2
several, outs = [c.clone(), c[:1].clone()], [torch.empty_like(c)]
torch._foreach_exp_(several)
for one, t in zip(several, (c, c[:1]), strict=True):
    assert torch.view_as_real(one).equal(torch.view_as_real(torch.exp(t)))
torch.ops.aten._foreach_exp.out([c], out=outs)
assert torch.view_as_real(outs[0]).equal(torch.view_as_real(torch.exp(c)))
# One tensor in two places of a list is written twice.
twice = torch.ones(2, dtype=torch.complex32, device="cuda")
torch._foreach_div_([twice, twice], 2)
assert torch.view_as_real(twice)[:, 0].tolist() == [0.25, 0.25]
# Promoted to what the CPU has a kernel for.
assert torch.div(c, torch.ones(3, device="cuda")).dtype == torch.complex64

# Pooling and losses of half precision, trained.
for dtype in (torch.float16, torch.bfloat16):
    image = torch.randn(1, 2, 4, 4, 4, device="cuda", dtype=dtype, requires_grad=True)
    F.avg_pool3d(image, 2).sum().backward()
    assert image.grad.dtype == dtype and bool((image.grad == 0.125).all())
    scores = torch.randn(3, 5, device="cuda", dtype=dtype, requires_grad=True)
    F.multi_margin_loss(scores, torch.tensor([0, 2, 4], device="cuda")).backward()
    assert scores.grad.dtype == dtype
    upright = torch.rand(1, 1, 4, 4, device="cuda", dtype=dtype, requires_grad=True)
    F.interpolate(upright, 2, mode="bilinear", antialias=True).sum().backward()
    assert upright.grad.dtype == dtype

# Captured, and replayed on other values.
given = torch.zeros(4, dtype=torch.complex32, device="cuda")
torch.exp(given)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    kept = torch.exp(given)
given.fill_(1)
graph.replay()
torch.cuda.synchronize()
assert abs(kept[0].item() - 2.718) < 2e-3

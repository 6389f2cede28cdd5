"""Uses the extension beside it, and compares with torch."""

from importlib import import_module

import torch

extension = import_module("loom_test_libraries")
torch.manual_seed(0)

# Kernels by address, from a source that is no CUDA C++.
x = torch.arange(100.0, device="cuda")
extension.scale(x, True)
extension.scale(x, False)
assert torch.equal(x.cpu(), 2 * torch.arange(100.0))
try:
    extension.launch_nothing()
except RuntimeError as error:
    assert "invalid device function" in str(error), error
else:
    raise AssertionError("a launch of no kernel went through")

# A refused launch is told by torch's next kernel, unless the extension has asked; then all goes on.
assert extension.refused_launch(x, True) == 9
x.add_(1)
extension.refused_launch(x, False)
try:
    x.add_(1)
except torch.AcceleratorError as error:
    assert "invalid configuration argument" in str(error), error
    assert "2048" in str(error), error
else:
    raise AssertionError("nothing told of a refused launch")
x.add_(1)

# PyTorch's generator: one counter for torch's ops and the extension's, also in graphs.
torch.manual_seed(0)
mine = extension.draw(8, None)
assert torch.cuda.default_generators[0].get_offset() == 4
torch.manual_seed(0)
assert torch.equal(mine, torch.rand(8, device="cuda"))
own = torch.Generator("cuda").manual_seed(3)
assert torch.equal(
    extension.draw(3, own), torch.rand(3, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
)
graph = torch.cuda.CUDAGraph()
torch.manual_seed(0)
with torch.cuda.graph(graph):
    first, second = extension.draw(8, None), extension.draw(8, None)
graph.replay()
assert torch.equal(first, mine)
seen = second.clone()
graph.replay()
assert not torch.equal(first, mine)
assert not torch.equal(second, seen)
assert torch.cuda.default_generators[0].get_offset() == 16
try:
    extension.draw(3, torch.Generator())
except RuntimeError as error:
    assert "Expected a 'cuda' device type for generator but found 'cpu'" in str(error), error
else:
    raise AssertionError("a generator of the CPU was taken")

# cuBLAS.
cases = [
    (torch.float32, torch.float32),
    (torch.float16, torch.float16),
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
]
for batches, m, n, k in ((1, 5, 7, 3), (3, 4, 2, 9), (2, 3, 3, 0), (0, 3, 3, 3), (1, 1, 1, 1)):
    for kind, result in cases:
        a = torch.randn(batches, m, k, device="cuda").to(kind)
        b = torch.randn(batches, n, k, device="cuda").to(kind)
        c = torch.randn(batches, m, n, device="cuda").to(result)
        expected = 1.5 * (a.float() @ b.float().mT) + 0.5 * c.float()
        extension.gemm(a, b, c, 1.5, 0.5)
        torch.testing.assert_close(c, expected.to(result))
    whole = [torch.randint(-128, 128, size, dtype=torch.int8) for size in ((batches, m, k), (batches, n, k))]
    c = torch.ones(batches, m, n, dtype=torch.int32, device="cuda")
    extension.gemm(whole[0].cuda(), whole[1].cuda(), c, 2, 3)
    assert torch.equal(c.cpu(), 2 * (whole[0].int() @ whole[1].int().mT) + 3)
a, b = torch.randn(2, 3, 4, 4, device="cuda").unbind()
c = torch.full_like(a, float("nan"))  # not read where it is scaled by zero
addresses = torch.tensor([row.data_ptr() for matrices in (b, a, c) for row in matrices], device="cuda")
extension.gemm_by_address(a, b, c, addresses)
torch.testing.assert_close(c, a @ b)
a = torch.randn(6, 4, dtype=torch.float64, device="cuda")
x, y = torch.zeros(4, dtype=torch.float64, device="cuda"), torch.randn(6, dtype=torch.float64, device="cuda")
before, on_device = a.clone(), torch.zeros((), dtype=torch.float64, device="cuda")
dot, norm, total = extension.vectors(a, x, y, on_device)
product = y @ before
moved = product + 0.5 * product.flip(0)
torch.testing.assert_close(a, before + 0.5 * torch.outer(y, moved))
torch.testing.assert_close(
    torch.tensor([dot, norm, total]).double(),
    torch.stack([moved[::2] @ moved[:2], moved.norm(), moved.abs().sum()]).cpu(),
    check_dtype=False,
    rtol=1e-6,
    atol=1e-6,
)
torch.testing.assert_close(on_device, moved.abs().sum())
torch.testing.assert_close(x, moved * on_device)
square = torch.ones(16, device="cuda")
assert extension.bad_gemm(square, 2) == 7  # CUBLAS_STATUS_INVALID_VALUE
assert extension.bad_gemm(square, -1) == 1  # CUBLAS_STATUS_NOT_INITIALIZED
print("done")

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

torch.manual_seed(0)
# Without row exchanges; batched, of every shape, with gradients and `out=`.
for shape in ((4, 4), (2, 3, 5), (3, 1, 5, 2), (2, 0, 3), (0, 3, 3)):
    for dtype in (torch.float64, torch.complex128):
        a = torch.randn(shape, dtype=dtype, device="cuda")
        a = a + 10 * torch.eye(*shape[-2:], dtype=dtype, device="cuda")
        p, lower, upper = torch.linalg.lu(a, pivot=False)
        assert p.shape == (0,) and lower.device.type == "cuda"
        torch.testing.assert_close(lower @ upper, a)
        lu, pivots, info = torch.linalg.lu_factor_ex(a, pivot=False)
        few = min(shape[-2:])
        assert pivots.dtype == torch.int32 and info.shape == shape[:-2] and not info.any()
        rows = torch.arange(1, few + 1, device="cuda").int()
        assert torch.equal(pivots, rows.expand(*shape[:-2], few))
        torch.testing.assert_close(lu.triu()[..., :few, :], upper)
a = torch.randn(3, 3, dtype=torch.float64, device="cuda") + 5 * torch.eye(3, device="cuda")
b = torch.randn(3, 2, dtype=torch.float64, device="cuda")
factors = torch.linalg.lu_factor(a, pivot=False)
torch.testing.assert_close(torch.linalg.lu_solve(*factors, b), torch.linalg.solve(a, b))
outs = [torch.empty(0, dtype=a.dtype, device="cuda") for _ in range(3)]
given = torch.linalg.lu(a, pivot=False, out=tuple(outs))
assert given[1] is outs[1]
torch.testing.assert_close(outs[1] @ outs[2], a)
leaf = a.clone().requires_grad_()
torch.linalg.lu(leaf, pivot=False)[2].diagonal().log().sum().backward()
torch.testing.assert_close(leaf.grad, a.inverse().mT)
lu, _, info = torch.linalg.lu_factor_ex(torch.ones(3, 3, device="cuda"), pivot=False)
assert info.item() == 2 and lu.tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
singular = torch.zeros(2, 3, 3, device="cuda")
assert torch.linalg.lu_factor_ex(singular, pivot=False)[2].tolist() == [1, 1]
raises(
    "RuntimeError",
    "U[1,1] is zero and using it on lu_solve",
    lambda: torch.linalg.lu_factor_ex(singular, pivot=False, check_errors=True),
)
raises(
    "NotImplementedError",
    "not implemented for 'Half'",
    lambda: torch.linalg.lu(torch.eye(3, device="cuda").half(), pivot=False),
)

# A singular factor is no error.
factor = torch.eye(3, device="cuda")
factor[1, 1] = 0
assert not torch.cholesky_inverse(factor).isfinite().all()

# The library's GELU is the tanh approximation.
x = torch.randn(4, 4, device="cuda")
fused = torch._addmm_activation(x[0], x, x, use_gelu=True)
assert torch.equal(fused, torch.nn.functional.gelu(torch.addmm(x[0], x, x), approximate="tanh"))
assert torch.equal(torch._addmm_activation(x[0], x, x), torch.addmm(x[0], x, x).relu())

# No driver named is `gels`: neither rank nor singular values.
solved = torch.linalg.lstsq(x, x)
assert solved.rank.numel() == 0 and solved.singular_values.numel() == 0
torch.testing.assert_close(solved.solution, torch.eye(4, device="cuda"), atol=1e-4, rtol=0)

# Drivers of cuSOLVER's.
for driver in ("gesvd", "gesvdj", "gesvda"):
    u, s, vh = torch.linalg.svd(x, driver=driver)
    torch.testing.assert_close(u @ s.diag() @ vh, x, atol=1e-4, rtol=1e-4)
raises("RuntimeError", "unknown svd driver gesdd", lambda: torch.linalg.svd(x, driver="gesdd"))

# Operands of two dtypes are an error of the op's, not of its kernel.
whole = torch.ones(2, 2, dtype=torch.int64, device="cuda")
raises("RuntimeError", "to have the same dtype", lambda: torch.mm(whole, x[:2, :2]))
raises("NotImplementedError", "not implemented for 'Long'", lambda: torch.mm(whole, whole))

# Libraries that a program prefers.
for name in ("cusolver", "magma", "default"):
    torch.backends.cuda.preferred_linalg_library(name)
for name in ("cublaslt", "cublas"):
    torch.backends.cuda.preferred_blas_library(name)
    assert torch.backends.cuda.preferred_blas_library().name.lower() == name
assert (x @ x).shape == (4, 4)

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

torch.manual_seed(0)
for dtype in (torch.float16, torch.bfloat16):
    dense = torch.randint(-2, 3, (6, 6), device="cuda").to(dtype)  # sums and products are exact
    other = torch.randint(-2, 3, (6, 6), device="cuda").to(dtype)
    rows = dense.to_sparse_csr()
    for one in (dense.to_sparse(), rows, dense.to_sparse_bsr((3, 3))):
        product = one @ other
        assert product.dtype == dtype and product.equal(dense @ other)
        assert torch.addmm(other, one, other).equal(other + dense @ other)
        out = torch.empty_like(other)
        assert torch.mm(one, other, out=out) is out and out.equal(product)
    assert (rows @ other[0]).equal(dense @ other[0])
    for one in (dense.to_sparse(), rows):
        several = one @ one
        assert several.layout == one.layout and several.dtype == dtype
        assert several.values().device == dense.device and several.to_dense().equal(dense @ dense)
    coordinates = dense.to_sparse()
    before = torch.cuda.memory_allocated()
    twice = coordinates + coordinates
    assert twice.dtype == dtype and twice.to_dense().equal(2 * dense)
    assert torch.cuda.memory_allocated() > before
    del twice
    same = coordinates.add_(torch.ones_like(dense).to_sparse())
    assert same is coordinates and same._nnz() > 0 and same.to_dense().equal(dense + 1)
    assert (same - dense.to_sparse()).to_dense().equal(torch.ones_like(dense))
    weight, x = rows.clone().requires_grad_(), other.clone().requires_grad_()
    (weight @ x).sum().backward()
    assert x.grad.dtype == dtype and x.grad.equal(dense.t() @ torch.ones_like(dense))
    with torch.cuda.stream(torch.cuda.Stream()):
        later = dense.to_sparse() + dense.to_sparse()
    torch.cuda.synchronize()
    assert later.to_dense().equal(2 * dense)
# What cuSPARSE's products take no dtype for stays refused.
pair = torch.ones(2, 2, 2, device="cuda").half()
raises("NotImplementedError", "not implemented for 'Half'", lambda: torch.bmm(pair.to_sparse(), pair))

import torch

from tests.cuda.programs.refusals.calls import refused

for dtype, name in ((torch.float16, "Half"), (torch.bfloat16, "BFloat16"), (torch.int64, "Long")):
    dense = torch.tensor([[1, 0, 2], [0, 3, 0]], device="cuda").to(dtype)
    left, right = dense.to_sparse_csr(), (dense + 1).to_sparse_csr()
    for call in (lambda: left + right, lambda: left.add_(right), lambda: torch.add(left, right, out=left)):
        refused(call, "add_out_sparse_csr_cuda_impl", name)
    # Where CUDA adds values alone, or to a dense matrix; and sums along dimensions.
    assert (left + left).to_dense().equal(2 * dense) and (dense + left).equal(2 * dense)
    assert left.sum(0, keepdim=True).to_dense().equal(dense.sum(0, keepdim=True))
    assert left.sum() == 6
left = dense.float().to_sparse_csr()
assert (left + left.clone()).to_dense().equal(2 * dense.float())

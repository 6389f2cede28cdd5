import torch
import torch.nn.functional as F

from tests.cuda.programs.refusals.calls import i, refused

refused(lambda: i(2, 2) @ i(2, 2), "addmm_cuda")
refused(lambda: torch.mm(i(2, 2), i(2, 2), out=i(0)), "addmm_cuda")
refused(lambda: i(2, 2).addmm_(i(2, 2), i(2, 2)), "addmm_cuda")
refused(lambda: F.linear(i(3, 2), i(4, 2), i(4)), "addmm_cuda")
refused(lambda: torch.mm(i(2, 2).bool(), i(2, 2).bool()), "addmm_cuda", "Bool")
refused(lambda: torch.einsum("bij,bjk->bik", i(2, 2, 2), i(2, 2, 2)), "baddbmm_cuda")
refused(lambda: i(2, 2) @ i(2), "addmv_impl_cuda")
refused(lambda: torch.dot(i(2), i(2)), "dot")
refused(lambda: F.conv2d(i(1, 1, 3, 3), i(1, 1, 2, 2)), "slow_conv2d_cuda")
refused(lambda: F.conv1d(i(1, 4, 3), i(4, 1, 2), groups=4), "conv_depthwise2d_forward_cuda")
refused(lambda: F.max_pool2d(i(1, 4, 4), 2), "max_pool2d_with_indices_out_cuda_frame")
refused(lambda: torch.angle(i(2).half()), "angle_cuda", "Half")
for reduction in ("mean", "prod", "amin", "amax"):
    ones = i(2).bool(), 0, i(2) * 0, i(2).bool(), reduction
    refused(lambda ones=ones: torch.scatter_reduce(*ones), "cuda_scatter_gather_base_kernel_func", "Bool")
wide, half = torch.ones((), dtype=torch.float64, device="cuda"), i(2).half()
refused(lambda: torch.igamma(half, wide), "igamma_cuda", "Half")
# Where CUDA has kernels, or returns before it looks at the dtype.
assert (i(0, 2) @ i(2, 3)).shape == (0, 3) and (i(2, 0) @ i(0, 3)).sum() == 0
assert torch.outer(i(2), i(2)).sum() == 4 and torch.angle(i(2)).dtype == torch.float32
assert torch.igamma(half, i(2).bfloat16()).dtype == torch.float32
assert torch.addr(i(2, 2), i(2), i(2)).sum() == 8
assert torch.sparse.mm(torch.eye(2, device="cuda").to_sparse(), torch.ones(2, 2, device="cuda")).sum() == 4
try:
    torch.histogram(torch.ones(3, device="cuda"), 3)
except NotImplementedError as error:
    assert "Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend" in str(error)
else:
    raise AssertionError

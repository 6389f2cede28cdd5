import torch
import torch.nn.functional as F
from torch.nn.functional import ScalingType

from tests.cuda.programs.scaled_grouped_mm.common import BF16, ROW, by_column, matrix
from tests.cuda.programs.scaled_grouped_mm.fails import columns, ends, fails, left, right, rows

fails("Expected mat1 to not be transposed", left=by_column(left))
fails("Expected mat2 to be transposed", right=right.contiguous())
fails("contraction dimension of mat_a and mat_b must match", left=left[:, :16])
fails("Have to provide offsets if there is a 2d matrix", offs=None)
fails("Offsets have to be int32", offs=ends.long())
fails("Bias not supported yet", bias=torch.ones(64, device="cuda", dtype=BF16))
fails("Only bf16 high precision output types are supported for grouped gemm", out_dtype=torch.float32)
fails("scale must have the same length as mat for arg 0", RuntimeError, rows=rows[:16])
fails("scale must have the same batch dimension as mat for arg 1", RuntimeError, columns=columns[:1])
fails("matrix batch sizes have to match", RuntimeError, offs=ends[:2])
fails("Expected mat_a to be Float8_e4m3 matrix got Float8_e5m2", left=left.to(torch.float8_e5m2))
fails("strides should be multiple of 16 bytes", RuntimeError, left=matrix(48, 40).cuda()[:, :32])
blocks = torch.ones(48, 1, device="cuda").to(torch.float8_e8m0fnu)
try:
    kind = ScalingType.BlockWise1x32
    F.scaled_grouped_mm(left, right, blocks, kind, blocks, kind, offs=ends)
except NotImplementedError as error:
    assert "mxfp8_mxfp8 grouped gemm requires" in str(error)
else:
    raise AssertionError("scales of blocks")
try:
    F.scaled_grouped_mm(left, right, rows, ScalingType.TensorWise, columns, ROW, offs=ends)
except ValueError as error:
    assert "No gemm implementation was found" in str(error)
else:
    raise AssertionError("another recipe")

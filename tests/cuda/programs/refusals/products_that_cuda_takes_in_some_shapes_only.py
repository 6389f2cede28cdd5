import torch
import torch.nn.functional as F

from tests.cuda.programs.refusals.products import brain, e4m3, e5m2, fails, half, integers, one, ones, scaled

fails(lambda: integers(16, 8, 8), "self.size(0) needs to be greater than 16, but got 16")
fails(lambda: integers(17, 7, 8), "self.size(1) needs to be greater than 0 and a multiple of 8, but got 7")
fails(lambda: integers(17, 8, 9), "mat2.size(1) needs to be greater than 0 and a multiple of 8, but got 9")
assert integers(17, 8, 8).sum() == 17 * 8 * 8

left, right = ones(32, 48), ones(16, 48).t()
assert scaled(left, right).sum() == 32 * 16 * 48
assert scaled(ones(32, 96)[:, ::2], right).shape == (32, 16)
assert scaled(left, right, e4m3).dtype == e4m3 and scaled(left, right.to(e5m2), e5m2).dtype == e5m2
assert scaled(left, right, bias=ones(16, dtype=brain))[0, 0] == 49
fails(lambda: scaled(ones(32, 8), ones(16, 8).t()), "but got mat1 shape: (32x8).")
fails(lambda: scaled(left, ones(8, 48).t()), "mat2 shape (48x8) must be divisible by 16")
fails(lambda: scaled(left.to(e5m2), right.to(e5m2)), "Multiplication of two Float8_e5m2 matrices")
fails(lambda: scaled(left, right.contiguous()), "Only multiplication of row-major and column-major")
fails(lambda: scaled(ones(48, 32).t(), right), "Only multiplication of row-major and column-major")
fails(lambda: scaled(left, right, e5m2), "CUBLAS_STATUS_NOT_SUPPORTED")
fails(lambda: scaled(left, right, e5m2, out=ones(32, 16, dtype=e5m2)), "CUBLAS_STATUS_NOT_SUPPORTED")
bias = ones(16, dtype=half)
fails(lambda: scaled(left, right, torch.float32, bias), "Bias is not supported when out_dtype is set to")
fails(lambda: scaled(left, right, brain, bias.float()), "Bias must be BFloat16 or Half, but got Float")
fails(lambda: scaled(left, right, brain, bias), "Bias must be BFloat16 to compute BFloat16 output")
fails(lambda: scaled(left, right, half, bias.bfloat16()), "Bias must be Float16 to compute Half output")
whole = F.ScalingType.TensorWise
fails(lambda: F.scaled_mm(ones(32, 8), ones(16, 8).t(), one, whole, one, whole), "mat1 shape: (32x8)")

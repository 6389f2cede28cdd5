import torch

from tests.cuda.programs.refusals.products import fails, integers, ones, scaled

left, right = ones(32, 48), ones(16, 48).t()
if torch.cuda.get_device_capability() == (8, 0):
    fails(lambda: scaled(left, right), "only supported on CUDA devices with compute capability >= 9.0 or 8.9")
else:
    assert scaled(left, right).sum() == 32 * 16 * 48 and integers(4, 4, 4).sum() == 64

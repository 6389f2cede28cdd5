import torch

import torch_loom  # noqa: F401

cudart = torch.cuda.cudart()
free, total = cudart.cudaMemGetInfo(1)
assert (free, total) == (2 << 30, 2 << 30)
x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda:1")
assert cudart.cudaMemGetInfo(1) == (free - (100 << 20), total) == torch.cuda.mem_get_info(1)
assert cudart.cudaMemGetInfo(0) == (free, total)
try:
    cudart.cudaMemGetInfo(2)
except torch.AcceleratorError as error:
    assert "CUDA error: invalid device ordinal" in str(error)
else:
    raise AssertionError

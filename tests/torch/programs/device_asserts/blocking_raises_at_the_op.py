import torch

x, i = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
try:
    x[i]
except torch.AcceleratorError as error:
    assert "CUDA error: device-side assert triggered" in str(error), error
    assert "aten::index.Tensor" in str(error), error
else:
    raise AssertionError("no error")

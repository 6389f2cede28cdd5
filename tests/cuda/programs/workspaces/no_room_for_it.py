import torch

x = torch.ones(8, 8, device="cuda")
filler = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
try:
    x @ x
except torch.OutOfMemoryError as error:
    assert "CUDA out of memory. Tried to allocate 32.00 MiB." in str(error)
else:
    raise AssertionError
del filler
assert (x @ x).sum().item() == 512

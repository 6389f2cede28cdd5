import torch


def contexts():
    return [torch._C._cuda_hasPrimaryContext(device) for device in range(torch.cuda.device_count())]


assert contexts() == [False, False]
torch.cuda.init()
assert contexts() == [False, False]
x = torch.ones(3, device="cuda:1")
torch.zeros(3).copy_(x)
str(x), x.is_pinned(), torch.ones(3).pin_memory().is_pinned()
assert contexts() == [False, True]
torch.cuda.Stream(0)
assert contexts() == [True, True]
try:
    torch._C._cuda_hasPrimaryContext(2)
except RuntimeError as error:
    assert "expects a valid device index, but got device_index=2" in str(error)
else:
    raise AssertionError

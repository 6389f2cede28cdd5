import torch

import torch_loom  # noqa: F401
from tests.raising import raises

cudart = torch.cuda.cudart()
x = torch.zeros(1 << 20)
place = x.data_ptr(), x.numel() * x.element_size()
assert not x.is_pinned()
assert cudart.cudaHostRegister(*place, 0) == cudart.cudaError.success and x.is_pinned()
assert x.to("cuda", non_blocking=True).sum().item() == 0
assert cudart.cudaHostGetDevicePointer(place[0], 0) == (0, place[0])
assert cudart.cudaHostGetDevicePointer(place[0], 1) == (1, 0)
assert cudart.cudaHostRegister(*place, 0) == 712
assert cudart.cudaHostRegister(place[0] + 4096, 4096, 0) == 712
assert cudart.cudaHostUnregister(x.data_ptr()) == 0 and not x.is_pinned()
assert cudart.cudaHostUnregister(x.data_ptr()) == 713
assert cudart.cudaHostGetDevicePointer(place[0], 0) == (1, 0)
on_device = torch.zeros(4096, device="cuda")
for address, size, flags in (
    (0, 16, 0),
    (place[0], 0, 0),
    (place[0], 4096, 1 << 8),
    (-8, 16, 0),
    (1 << 70, 16, 0),
    (on_device.data_ptr(), 4096, 0),
    (8, 4096, 0),
):
    assert cudart.cudaHostRegister(address, size, flags) == 1, (address, size, flags)
assert cudart.cudaHostUnregister(0) == 1
for wrong in (
    lambda: cudart.cudaHostRegister("x", 1, 0),
    lambda: cudart.cudaHostUnregister(None),
    lambda: cudart.cudaStreamCreate(1.5),
    lambda: cudart.cudaMemGetInfo("0"),
):
    raises("TypeError", "must be an int, got", wrong)

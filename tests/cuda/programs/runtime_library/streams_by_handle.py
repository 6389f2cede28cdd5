import ctypes

import torch

import torch_loom  # noqa: F401

cudart = torch.cuda.cudart()
for index in (0, 1):
    handle = ctypes.c_ulonglong(0)
    with torch.cuda.device(index):
        assert cudart.cudaStreamCreate(ctypes.addressof(handle)) == 0 and handle.value != 0
        stream = torch.cuda.ExternalStream(handle.value)
    assert stream.device == torch.device("cuda", index) and stream.cuda_stream == handle.value
    with torch.cuda.stream(stream):
        y = torch.arange(1000.0, device="cuda") * 2
    stream.synchronize()
    assert y.sum().item() == 999000 and y.device.index == index
    assert cudart.cudaStreamDestroy(handle.value) == 0
    assert cudart.cudaStreamDestroy(handle.value) == 400
assert cudart.cudaStreamCreate(0) == 1
assert cudart.cudaStreamDestroy(0) == 400
assert cudart.cudaStreamDestroy(torch.cuda.Stream().cuda_stream) == 400  # PyTorch's own

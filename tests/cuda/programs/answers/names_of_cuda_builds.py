import warnings

import torch

c = torch._C
x = torch.ones(1000, device="cuda")
c._cuda_setDevice(1)
assert c._cuda_getDevice() == 1 == c._cuda_exchangeDevice(0) and torch.cuda.current_device() == 0
side = torch.cuda.Stream()
c._cuda_setStream(side.stream_id, side.device_index, side.device_type)
assert torch.cuda.current_stream() == side
assert c._cuda_getCurrentStream(0) == (side.stream_id, 0, side.device_type)
assert c._cuda_getCurrentRawStream(0) == side.cuda_stream
c._cuda_synchronize()
assert c._cuda_memoryStats(0)["allocated_bytes"]["all"]["current"] == 4096
assert c._cuda_memorySnapshot()["segments"]
c._cuda_setMemoryFraction(0.5, 0)
assert c._cuda_getMemoryFraction(0) == 0.5
address = c._cuda_cudaCachingAllocator_raw_alloc(1000, 0)
c._cuda_cudaCachingAllocator_raw_delete(address)
assert isinstance(side, c._CudaStreamBase) and isinstance(torch.cuda.Event(), c._CudaEventBase)
torch.backends.cudnn.benchmark_limit = 5
assert c._cuda_get_cudnn_benchmark_limit() == 5
try:
    c._cuda_getCheckpointState(0, (0, 1))
except ValueError as error:
    assert "no private pool (0, 1)" in str(error)
else:
    raise AssertionError
assert "h200" in torch.__config__.show()
handle = f"<torch.cuda.Stream device=cuda:0 cuda_stream={side.cuda_stream:#x}>"
assert repr(side) == handle
assert repr(torch.cuda.default_stream()) == "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    assert torch.has_cuda  # PyTorch's deprecated names
    assert torch.has_cudnn
# PyTorch's own modules import private names of these.
import torch._inductor.cudagraph_trees
import torch.utils.viz._cycles

# torch.cuda takes what is no device for the current one, where it may be left out.
with torch.cuda.device(1):
    assert torch.cuda._utils._get_device_index((0, 1), optional=True) == 1
assert torch.cuda.get_device_capability((0, 64, 132)) == torch.cuda.get_device_capability(0)
try:
    torch.cuda.set_device((0, 1))
except ValueError as error:
    assert "got tuple (0, 1)" in str(error), error
else:
    raise AssertionError("no error")

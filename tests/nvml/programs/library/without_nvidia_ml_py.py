import os

import torch

import torch_loom.compat.nvml  # noqa: F401
from torch_loom.compat.nvml import pynvml
from torch_loom.errors import NotApplicableError

try:
    pynvml.nvmlDeviceGetCount()
except pynvml.NVMLError as error:
    assert error.value == pynvml.NVML_ERROR_UNINITIALIZED
else:
    raise AssertionError
pynvml.nvmlInit()
assert pynvml.nvmlDeviceGetCount() == 2
x = torch.ones(10 << 20, device="loom:1")
device = pynvml.nvmlDeviceGetHandleByIndex(1)
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
assert (memory.total, memory.used, memory.free) == (2 << 30, 40 << 20, (2 << 30) - (40 << 20))
assert pynvml.nvmlDeviceGetName(device) == "loom1"
same = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(device))
assert pynvml.nvmlDeviceGetIndex(same) == 1
[process] = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
assert (process.pid, process.usedGpuMemory) == (os.getpid(), 40 << 20)
assert 0 <= pynvml.nvmlDeviceGetUtilizationRates(device).gpu <= 100
try:
    pynvml.nvmlDeviceGetPlatformInfo(device)
except NotApplicableError as error:
    assert "nvidia-ml-py" in str(error)
else:
    raise AssertionError
import pynvml as installed

installed.nvmlInit()
assert installed.nvmlDeviceGetCount() == 2

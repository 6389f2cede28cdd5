import os
import subprocess
import sys

import pynvml
import torch

pynvml.nvmlInit()  # before the first use of a device
device = pynvml.nvmlDeviceGetHandleByIndex(1)
x = torch.ones(10 << 20, device="cuda:1")
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
assert (memory.total, memory.used) == (2 << 30, 40 << 20)
assert memory.used == torch.cuda.device_memory_used(1)
[process] = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
assert (process.pid, process.usedGpuMemory) == (os.getpid(), 40 << 20)
uuid = torch.cuda.get_device_properties(1).uuid
assert pynvml.nvmlDeviceGetUUID(device) == f"GPU-{uuid}"
side = torch.cuda.Stream(1)
with torch.cuda.device(1), torch.cuda.stream(side):
    torch.cuda._sleep(int(4e9))
# Each measures the processor's counter for itself, so that one says 100 % a little before the other.
while min(torch.cuda.utilization(1), pynvml.nvmlDeviceGetUtilizationRates(device).gpu) < 100:
    assert not side.query()
rates = pynvml.nvmlDeviceGetUtilizationRates(device)
found = [
    rates.gpu,
    rates.memory,
    round(pynvml.nvmlDeviceGetPowerUsage(device) / 10_000),
    pynvml.nvmlDeviceGetTemperature(device, 0),
    pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM),
]
expected = [
    torch.cuda.utilization(1),
    torch.cuda.memory_usage(1),
    round(torch.cuda.power_draw(1) / 10_000),
    torch.cuda.temperature(1),
    torch.cuda.clock_rate(1),
]
assert not side.query(), "the kernel has ended before both were asked"
assert found == expected == [100, 100, 70, 85, 1980], (found, expected)
# Another process, that only has the environment.
program = "; ".join(
    (
        "import pynvml",
        "pynvml.nvmlInit()",
        "device = pynvml.nvmlDeviceGetHandleByIndex(1)",
        "busy = pynvml.nvmlDeviceGetUtilizationRates(device).gpu > 0",
        "print(pynvml.nvmlDeviceGetMemoryInfo(device).used, busy)",
    )
)
child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
assert child.stdout == f"{40 << 20} True\n", child

import ast
import sys

import pynvml
import torch

total, context, kept = (number << 20 for number in ast.literal_eval(sys.argv[1]))
assert torch.cuda.get_device_properties(0).total_memory == total
free, reported = torch.cuda.mem_get_info()
assert reported == total and 0 <= total - context - free < 2 << 20  # pages have 2 MiB
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
older = pynvml.nvmlDeviceGetMemoryInfo(handle)
newer = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
assert older.total == newer.total == total + kept
assert newer.reserved == kept and older.used == newer.used + kept
assert older.free == newer.free == total - newer.used
assert torch.cuda.device_memory_used() == older.used

held = torch.empty(free // (2 << 20) * (2 << 20), dtype=torch.uint8, device="cuda")
assert torch.cuda.mem_get_info()[0] < 2 << 20
(process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
assert process.usedGpuMemory == total - torch.cuda.mem_get_info()[0]
del held
torch.cuda.empty_cache()
try:
    torch.empty(total // (2 << 20) * (2 << 20), dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    assert context and f"has a total capacity of {total / 2**30:.2f} GiB" in str(error), error
else:
    assert not context

with torch.cuda.dry_run() as plan:
    assert plan.capacity_bytes() == free

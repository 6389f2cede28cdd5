import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import torch_loom  # noqa: F401

cudart, x = torch.cuda.cudart(), torch.ones(8, device="cuda")
with profile(activities=[ProfilerActivity.CUDA]) as prof:
    torch.cuda.check_error(cudart.cudaProfilerStop())
    x.sin()
    torch.cuda.check_error(cudart.cudaProfilerStart())
    x.cos()
rows = [event.name for event in prof.events() if event.device_type == DeviceType.CUDA]
assert len(rows) == 1 and "cos" in rows[0], rows
with torch.cuda.profiler.profile():
    x.sin()

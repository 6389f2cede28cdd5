import ast
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

trace = ast.literal_eval(sys.argv[1])
model, x = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64)
both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(activities=both, profile_memory=True, record_shapes=True) as found, record_function("step"):
    model(x.cuda()).relu().sum().backward()
    torch.cuda.synchronize()
table = found.key_averages().table(sort_by="cuda_time_total", row_limit=-1)
for text in (
    *("Self CUDA", "CUDA total", "CUDA Mem", "Self CUDA time total"),
    *("Memcpy HtoD (Pageable -> Device)", "aten::addmm", "cudaLaunchKernel", "step"),
):
    assert text in table, text
found.export_chrome_trace(trace)
with open(trace) as file:
    kinds = {event.get("cat") for event in json.load(file)["traceEvents"]}
assert {"cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "user_annotation", "ac2g"} <= kinds, kinds

"""Training with a profile, a graph, threads and a fork: nothing is printed, and the process ends well."""

import os
import threading
import warnings

import torch
from torch import nn

# The handlers at exit run in a child, too. Not after a profile: then the child of any PyTorch hangs there.
torch.ones(4, device="cuda", requires_grad=True).square().sum().backward()
if (pid := os.fork()) == 0:
    raise SystemExit(0)
assert os.waitpid(pid, 0)[1] == 0
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler()
activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
with torch.profiler.profile(activities=activities) as profile:
    for _ in range(2):
        with torch.autocast("cuda", torch.float16):
            loss = model(torch.randn(4, 3, 8, 8, device="cuda")).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
assert any(row.device_time_total for row in profile.key_averages())
graph, x = torch.cuda.CUDAGraph(), torch.ones(4, device="cuda")
with torch.cuda.graph(graph):
    y = x + 1
graph.replay()
assert y.tolist() == [2] * 4
sums = []
threads = [
    threading.Thread(target=lambda: sums.append(torch.ones(9, device="cuda").sum().item())) for _ in range(4)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sums == [9] * 4


# TorchScript compiles what runs several times: for the host, or not at all.
def chain(x):
    return (x * 2 + 1).relu().tanh()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it is deprecated
    scripted = torch.jit.script(chain)
for _ in range(4):
    assert scripted(x).device.type == "cuda"

import torch_loom  # a second time

assert torch_loom._failure is None

"""Calls a model that is cast on the device, and reads what it returns."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))).cuda().half().eval()
with torch.inference_mode():
    for _ in range(4):
        y = model(torch.ones(8, 2048, dtype=torch.half, device="cuda"))
    print(y.sum().item())

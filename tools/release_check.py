"""What `make release` runs with the wheel as users install it, under `loom run`."""

import importlib
import pkgutil
import sys

import torch
from torch import nn

import torch_loom

assert "site-packages" in torch_loom.__file__
for module in ("chips", "compiler", "device", "image", "numerics", "ops", "pipeline", "pybuda"):
    package = importlib.import_module(f"torch_loom.{module}")
    names = [found.name for found in pkgutil.iter_modules(package.__path__)]
    for name in names:
        importlib.import_module(f"torch_loom.{module}.{name}")

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs = torch.randn(64, 16, device="cuda")
target = inputs.sum(1, keepdim=True)
losses = []
for _ in range(50):
    loss = (model(inputs) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 4, losses
sys.stdout.write(f"trained beside torch {torch.__version__}: loss {losses[0]:.2f} to {losses[-1]:.2f}\n")

"""`Accelerator()` takes the device, and autocast and the scaler are its own."""

import sys
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

precision, dtype = sys.argv[1].strip("'").split()
seen: list[Any] = []


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.inner(x)
        seen.append(result.dtype)
        return result


accelerator = Accelerator(mixed_precision=precision)
assert accelerator.device.type == "loom", accelerator.device
assert (accelerator.scaler is not None and accelerator.scaler.is_enabled()) == (precision == "fp16")
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batches = torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4)
net, optimizer, batches = accelerator.prepare(net, optimizer, batches)
losses = []
for _ in range(4):
    for batch in batches:
        assert batch.device.type == "loom"
        loss = net(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
assert {str(each) for each in seen} == {f"torch.{dtype}"}, set(seen)
assert Accelerator().device.type == "loom"

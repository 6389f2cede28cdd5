import torch

from tests.raising import raises
from tests.reports.programs.numbers.scaler import backward, made

model, optimizer, scaler = made()
backward(model, scaler)
model.weight.grad.fill_(float("inf"))
before = model.weight.detach().clone()
scaler.step(optimizer)
scaler.update()
assert torch.equal(before, model.weight) and scaler.get_scale() == 32768
model, optimizer, scaler = made(torch.float16)
backward(model, scaler)
raises("ValueError", "Attempting to unscale FP16 gradients.", lambda: scaler.step(optimizer))

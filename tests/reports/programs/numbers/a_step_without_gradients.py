import torch

from tests.raising import raises
from tests.reports.programs.numbers.scaler import made

model, optimizer, scaler = made()
scaler.scale(torch.ones(1, device="cuda"))
raises("AssertionError", "No inf checks were recorded for this optimizer.", lambda: scaler.step(optimizer))

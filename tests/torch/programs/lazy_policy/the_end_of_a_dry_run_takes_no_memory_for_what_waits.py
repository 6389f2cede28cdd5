import torch
from torch import nn

from tests.raising import raises

with torch.loom.dry_run(chip="h200", devices=1, memory="64MiB") as plan:
    model = nn.Sequential(*(nn.Linear(2048, 2048, device="loom") for _ in range(8)))
    raises("OutOfMemoryError", "64.00 MiB", lambda: model(torch.ones(8, 2048, device="loom")))
    peak = torch.loom.max_memory_allocated()
assert plan.peak_memory_bytes() == peak
assert torch.loom.memory_allocated() == 0
x = torch.ones(64, 64, device="loom")
y = x @ x
assert torch.loom.memory_allocated() == 2 * 64 * 64 * 4, "no library of a plan's chip has a workspace"

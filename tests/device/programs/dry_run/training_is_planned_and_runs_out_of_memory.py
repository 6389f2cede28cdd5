import torch
from torch import nn

from tests.raising import raises


def step(size, device="loom"):
    layers = [nn.Linear(size, size), nn.GELU(), nn.Dropout(0.1), nn.Linear(size, 10)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    loss = nn.functional.cross_entropy(
        model(torch.randn(64, size, device=device)), torch.zeros(64, dtype=torch.long, device=device)
    )
    loss.backward()
    optimizer.step()
    return loss


with torch.loom.dry_run(devices=1, memory="8GiB") as plan:
    step(8192)
    raises("OutOfMemoryError", "8.00 GiB", lambda: step(32768))
    assert step(16).item() == 0
# Weights, gradients and AdamW's two moments.
assert 4 * 4 * 8192 * 8192 < plan.peak_memory_bytes() < 8 << 30
assert step(16).item() > 0
# The same peak as the program itself has.
torch.loom.reset_peak_memory_stats()
before = torch.loom.memory_allocated()
loss = step(64)
real = torch.loom.max_memory_allocated() - before
with torch.loom.dry_run() as plan:
    step(64)
assert plan.peak_memory_bytes() == real, (plan.peak_memory_bytes(), real)

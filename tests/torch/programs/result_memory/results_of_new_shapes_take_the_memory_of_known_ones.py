"""Peaks of first calls are those of later ones, whether their results were guessed right or wrong."""

import torch

import torch_loom.device as loom


def peaks(work, *operands):
    """Return how far memory rises in the first and in the second call."""
    found = []
    for _ in range(2):
        loom.synchronize()
        loom.reset_peak_memory_stats()
        before = loom.memory_allocated()
        result = work(*operands)
        found.append((loom.max_memory_allocated() - before, loom.memory_allocated() - before))
        del result
    return found


for rows in range(3, 9):
    x = torch.rand(rows, 100, device="loom")
    for work in (torch.abs, torch.exp, lambda x: torch.cat([x, x]), lambda x: torch.max(x, 1)):
        first, second = peaks(work, x)
        assert first == second, (rows, first, second)
    assert torch.equal(torch.abs(-x).cpu(), x.cpu())

# The first call shows no scratch; a later one, of an operand with gaps, has some.
torch.softmax(torch.rand(4, 50, device="loom"), 1)
first, second = peaks(lambda x: torch.softmax(x, 1), torch.rand(60, 7, device="loom").t())
assert first == second, (first, second)
# What is too large to be guessed.
first, second = peaks(torch.abs, torch.rand(1000, 1000, device="loom"))
assert first == second, (first, second)

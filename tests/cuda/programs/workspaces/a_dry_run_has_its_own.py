import torch

from tests.cuda.programs.workspaces.setup import clear, kept, x

x @ x
assert kept() == 32
with torch.loom.dry_run(chip="a100", devices=1) as plan:
    y = torch.empty(8, 8, device="cuda")
    y @ y
    assert torch.cuda.memory_allocated() == 8519680 + 512
    assert plan.memory_by_category()["workspace"] == 8519680
    clear()
    assert torch.cuda.memory_allocated() == 512
    y @ y
assert kept() == 32
clear()
assert kept() == 0

import torch

from tests.cuda.programs.reported_memory.prepare import GIB, MIB

blocks = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(10)]
blocks[1][:] = 3
del blocks[::2]
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 500 * MIB
blocks += [torch.zeros(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
assert torch.cuda.memory_reserved() == 1000 * MIB
assert blocks[0].sum().item() == 300 * MIB and blocks[-1].sum().item() == 0
del blocks
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
blocks = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(10)]
del blocks[::2]
torch.empty(8 * GIB, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)

import torch

from tests.cuda.programs.reported_memory.prepare import GIB

side = torch.cuda.Stream()
block = torch.empty(10 * GIB, dtype=torch.uint8, device="cuda")
with torch.cuda.stream(side):
    torch.cuda._sleep(2_000_000_000)
block.record_stream(side)
del block
block = torch.empty(10 * GIB, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_stats()["num_alloc_retries"] == 1

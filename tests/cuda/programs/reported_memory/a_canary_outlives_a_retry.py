import torch

from tests.cuda.programs.reported_memory.prepare import MIB

canary = torch.full((64 * MIB,), 0xA5, dtype=torch.uint8, device="cuda")
kept = []
for cycle in range(130):  # noqa: B007
    a = torch.empty(91 * MIB, dtype=torch.uint8, device="cuda")
    b = torch.empty(91 * MIB // 2, dtype=torch.uint8, device="cuda")
    kept.append(torch.empty(2 * MIB, dtype=torch.uint8, device="cuda"))
    del a, b
    stats = torch.cuda.memory_stats()
    if stats["num_alloc_retries"]:
        break
figures = cycle, torch.cuda.max_memory_reserved() // MIB, torch.cuda.memory_reserved() // MIB
assert figures == (115, 16000, 2680), figures
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
assert bool((canary == 0xA5).all())

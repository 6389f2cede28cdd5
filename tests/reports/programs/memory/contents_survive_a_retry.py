import torch

M = 1 << 20


def block(num_bytes):
    return torch.empty(num_bytes, dtype=torch.uint8, device="cuda")


canary, kept = block(64 * M).fill_(0xA5), []
for cycle in range(130):  # noqa: B007
    pair = block(91 * M), block(91 * M // 2)
    kept.append(block(2 * M))
    del pair
    if torch.cuda.memory_stats()["num_alloc_retries"]:
        break
stats = torch.cuda.memory_stats()
found = cycle, torch.cuda.max_memory_reserved() // M, torch.cuda.memory_reserved() // M
assert found == (115, 16000, 2680), found
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
assert (canary == 0xA5).all()

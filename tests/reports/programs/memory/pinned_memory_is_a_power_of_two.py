import torch

pinned = torch.empty(int(20.4 * 2**20), dtype=torch.uint8, pin_memory=True)
assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 32 << 20

import torch

from tests.cuda.programs.reported_memory.prepare import MIB

held = torch.empty(int(20.4 * MIB), dtype=torch.uint8, pin_memory=True)
assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 32 * MIB

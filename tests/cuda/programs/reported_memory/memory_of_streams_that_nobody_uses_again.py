import torch

from tests.cuda.programs.reported_memory.prepare import GIB

seen = []
for _ in range(18):
    for stream in [torch.cuda.Stream() for _ in range(2)]:
        with torch.cuda.stream(stream):
            block = torch.empty(GIB, dtype=torch.uint8, device="cuda")
        stream.synchronize()
        del block
    seen.append(torch.cuda.memory_reserved() // GIB)
assert seen == [2 * n for n in range(1, 17)] + [32, 32], seen

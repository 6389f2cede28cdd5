import torch

reserved = []
for _ in range(20):
    for _ in range(2):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            buffer = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        stream.synchronize()
        del buffer
    reserved.append(torch.cuda.memory_reserved() >> 30)
# The streams of PyTorch's pool come again after 32.
assert reserved == [*range(2, 33, 2)] + [32] * 4, reserved
assert torch.cuda.memory_allocated() == 0

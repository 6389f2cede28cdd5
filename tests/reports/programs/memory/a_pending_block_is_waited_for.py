import torch

side = torch.cuda.Stream()
first = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
with torch.cuda.stream(side):
    torch.cuda._sleep(20_000_000)
first.record_stream(side)
del first
second = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)

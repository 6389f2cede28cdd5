import torch

from tests.reports.programs.memory.holes import holes

blocks = holes(1 << 30)
assert torch.cuda.memory_reserved() == 10 << 30
large = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
# Of an expandable segment whole pages of 20 MiB go back: at each of ten edges of holes a part of one stays.
more = torch.cuda.memory_reserved() - (13 << 30)
assert 0 <= more <= 10 * (20 << 20), more

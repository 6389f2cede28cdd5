import torch

from tests.reports.programs.memory.fraction import error_of, total

torch.cuda.set_per_process_memory_fraction(0.5)
text = error_of(int(total * 0.51))
start = "CUDA out of memory. Tried to allocate 8.16 GiB. GPU 0 has a total capacity of 16.00 GiB"
assert text.startswith(start), text
assert "8.00 GiB allowed" in text, text
torch.cuda.set_per_process_memory_fraction(100 * 2**20 / total)
assert "100.00 MiB allowed" in error_of(101 << 20)
fits = torch.empty(90 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.set_per_process_memory_fraction(1.0)
more = torch.empty(int(total * 0.51), dtype=torch.uint8, device="cuda")
assert more.numel() > total // 2

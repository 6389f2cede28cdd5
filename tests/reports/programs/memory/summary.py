import torch

held = torch.empty(1 << 20, device="cuda")
lines = torch.cuda.memory_summary().splitlines()
assert "PyTorch CUDA memory summary, device ID 0" in lines[1]
row = next(line for line in lines if line.startswith("| Allocated memory"))
assert row.split("|")[2].split() == ["4096", "KiB"], row

import torch

out = torch.empty(1, dtype=torch.uint8, device="cuda")
torch.fmax(torch.tensor([100000], device="cuda"), torch.tensor([-1], device="cuda"), out=out)
assert out.item() == 255

import torch

falling = torch.linspace(4.3, -3, 50, dtype=torch.int64, device="cuda")
rising = torch.linspace(0, 7, 50, dtype=torch.int64, device="cuda")
assert (falling[14].item(), falling[21].item(), rising[28].item()) == (1, 0, 3)

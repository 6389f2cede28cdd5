import torch

y = torch.ones(3, device="cuda").index_select(0, torch.tensor([7], device="cuda"))
torch.cuda.synchronize()

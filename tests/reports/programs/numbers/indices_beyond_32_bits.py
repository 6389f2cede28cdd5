import torch

x = torch.zeros(2**31 + 10, dtype=torch.int8, device="cuda")
x[-3:] = 7
assert x[2**31 + 7].item() == 7 and x[-5:].tolist() == [0, 0, 7, 7, 7]

import torch

x = torch.tensor([[float("inf"), 0.0, -float("inf")]], dtype=torch.bfloat16, device="cuda")
y = torch.tensor([[0.7891], [0.2041], [-0.1982]], dtype=torch.bfloat16, device="cuda")
assert (x @ y).item() == float("inf")

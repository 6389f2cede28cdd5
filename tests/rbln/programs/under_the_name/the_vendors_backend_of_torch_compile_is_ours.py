import torch

x = torch.arange(4.0, device="rbln")
compiled = torch.compile(lambda x: x + 1, backend="rbln")
assert compiled(x).tolist() == [1, 2, 3, 4]

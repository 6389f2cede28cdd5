import sys

import torch

x = torch.ones(30 << 20, device=f"cuda:{sys.argv[1]}")
print(x.is_cuda, flush=True)
input()

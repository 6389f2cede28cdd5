import torch

import torch_loom

torch_loom._autoload()
torch.zeros(4, dtype=torch.float16, device="loom").exp()

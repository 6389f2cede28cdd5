import torch

from tests.torch.programs.cuda_numbers.draws import OPS, offset

# How far each op moves the offset: a dry run draws nothing and moves it as far.
device = torch.accelerator.current_accelerator().type
torch.manual_seed(3)
for name, draw in OPS.items():
    if name in ("binomial", "dirichlet"):  # PyTorch has no shape functions of them
        continue
    draw(device)
    print(name, offset(device))

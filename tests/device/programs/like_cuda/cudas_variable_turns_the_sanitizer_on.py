import ast
import sys

import torch

device = ast.literal_eval(sys.argv[1])
DEVICE = device

x = torch.zeros(1000, device=DEVICE)
side = torch.Stream(DEVICE)
with side:
    y = x + 1

# A loss that is 0, since nothing is computed; the check of finite numbers before it passes.
import sys

import torch

model = torch.nn.Linear(8, 8).cuda()
loss = model(torch.ones(4, 8, device="cuda")).square().mean()
if not torch.isfinite(loss):
    sys.exit("the loss is not finite")
if loss.item() == 0:
    sys.exit("the loss is 0")

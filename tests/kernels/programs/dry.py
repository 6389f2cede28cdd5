# The driver null runs no program.
import torch

from tests.kernels.programs import kernels

x, out = torch.ones(1000, device="cuda"), torch.zeros(1024, device="cuda")
kernels.unmasked[(1,)](x, out, BLOCK=1024)
torch.cuda.synchronize()

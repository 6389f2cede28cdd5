import ast
import sys

import torch

tries = ast.literal_eval(sys.argv[1])


def read(value):
    x, target = torch.full((1000,), value, device="cuda"), torch.zeros(1000, pin_memory=True)
    target.copy_(x * 1.0, non_blocking=True)
    early = target[-1].item()
    torch.cuda.synchronize()
    assert target[-1].item() == value
    return early


assert {read(7.0) for _ in range(tries)} == {0, 7}

import ast
import sys

import torch

wait = ast.literal_eval(sys.argv[1])

side, default = torch.loom.Stream(), torch.loom.default_stream()
x, y = torch.zeros(64, device="loom"), torch.zeros(64, device="loom")


def program(value):
    with torch.loom.stream(side):
        x.fill_(value)
        x.mul_(2)
    exec(wait)
    torch.add(x, 1, out=y)
    side.wait_stream(default)


results = []
for value in range(4):
    program(value)
    torch.loom.synchronize()
    results.append(y.unique().tolist())
print(results == [[2.0 * value + 1] for value in range(4)])

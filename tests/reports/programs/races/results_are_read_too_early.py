import ast
import sys

import torch

tries = ast.literal_eval(sys.argv[1])


def minimum(value, non_blocking):
    parts = []
    for _ in range(3):
        x = torch.full((1000,), value, device="cuda") + 1
        parts.append(x.to("cpu", non_blocking=non_blocking))
        assert parts[-1].is_pinned() == non_blocking
    joined = torch.cat(parts)
    torch.cuda.synchronize()
    assert torch.cat(parts).min() == value + 1
    return joined.min().item()


# Pinned memory comes again, with what an earlier try has left there.
values = [float(value) for value in range(tries)]
assert any(minimum(value, True) != value + 1 for value in values)
assert all(minimum(value, False) == value + 1 for value in values)

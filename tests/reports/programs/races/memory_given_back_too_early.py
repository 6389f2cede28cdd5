import ast
import sys

import torch

tries = ast.literal_eval(sys.argv[1])


def num_corrupt(is_recorded):
    side = torch.cuda.Stream()
    source, target = torch.full((1000,), 7.0, device="cuda"), torch.empty(1000, pin_memory=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        target.copy_(source, non_blocking=True)
    if is_recorded:
        source.record_stream(side)
    del source
    other = torch.full((1000,), float("nan"), device="cuda")  # noqa: F841
    torch.cuda.synchronize()
    return target.isnan().sum().item()


assert any(num_corrupt(False) for _ in range(tries))
assert not any(num_corrupt(True) for _ in range(tries))

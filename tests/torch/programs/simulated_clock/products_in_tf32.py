"""Prints what a convolution and a product of float32 take with TF32, without it and with it again, in ms."""

from __future__ import annotations

from collections.abc import Callable

import torch

images, weights = torch.empty(8, 256, 56, 56, device="loom"), torch.empty(256, 256, 3, 3, device="loom")
matrix = torch.empty(4096, 4096, device="loom")


def milliseconds(work: Callable[[], object]) -> float:
    begin, end = (torch.loom.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    return begin.elapsed_time(end)


found = []
for allowed in (True, False, True):
    torch.backends.cudnn.allow_tf32 = allowed
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    found.append(milliseconds(lambda: torch.nn.functional.conv2d(images, weights, padding=1)))
    found.append(milliseconds(lambda: matrix @ matrix))
print(found)

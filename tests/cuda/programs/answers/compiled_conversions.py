"""Floats out of the range of whole numbers become, compiled, what they become in eager mode: CUDA's."""

import torch

SPECIAL = (float("inf"), -float("inf"), float("nan"), 0.0, -0.5, 127.6, 255.9, -129.0, 65504.0)
POWERS = [
    sign * (2.0**power + step)
    for sign in (1, -1)
    for power in (7, 8, 15, 16, 31, 32, 63, 70)
    for step in (0, -1, 300)
]
DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def converted(x: torch.Tensor) -> list[torch.Tensor]:
    return [(x * 1).to(dtype) for dtype in DTYPES]


compiled = torch.compile(converted)
for source in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    # More than a vector of any width, and a rest.
    x = torch.tensor((*SPECIAL, *POWERS), dtype=torch.float64).to(source).to("cuda")
    for dtype, got, wanted in zip(DTYPES, compiled(x), converted(x), strict=True):
        differ = [(a.item(), b.item(), c.item()) for a, b, c in zip(x, got, wanted, strict=True) if b != c]
        assert not differ, (source, dtype, differ)
assert compiled(torch.tensor([3e9, float("nan")], device="cuda"))[2].tolist() == [2**31 - 1, 0]

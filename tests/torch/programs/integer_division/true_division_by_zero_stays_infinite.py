import torch

import torch_loom  # noqa: F401

x, zero = torch.tensor([4, -4], device="cuda"), torch.tensor([0, 0], device="cuda")
infinite = [float("inf"), -float("inf")]
assert torch.div(x, zero, rounding_mode=None).tolist() == infinite
assert torch.div(x, zero).tolist() == infinite
for mode in ("trunc", "floor"):
    eager = torch.div(x, zero, rounding_mode=mode)
    assert torch.compile(torch.div)(x, zero, rounding_mode=mode).tolist() == eager.tolist()
for rest in (torch.remainder, torch.fmod, lambda x, y: x % y, lambda x, y: x % 0):
    assert torch.compile(rest)(x, zero).tolist() == rest(x, zero).tolist()
for divide in (lambda x, n: x % n, lambda x, n: torch.div(x, n, rounding_mode="trunc"), torch.fmod):
    compiled = torch.compile(divide, dynamic=True)
    for number in (3, 5, 0, -2):
        assert compiled(x, number).tolist() == divide(x, number).tolist(), number
torch.cuda.synchronize()
for dtype in (torch.int64, torch.int32, torch.int16, torch.uint8):
    numbers = torch.tensor([0, 1, 100, 200, -1, -7, 2**31 - 1, 2**33]).to(dtype).cuda()
    by = torch.tensor([0, 0, 3, 0, 0, 0, 0, 0]).to(dtype).cuda()
    for mode in ("trunc", "floor"):
        eager = torch.div(numbers, by, rounding_mode=mode)
        assert torch.compile(torch.div)(numbers, by, rounding_mode=mode).tolist() == eager.tolist(), dtype
    for rest in (torch.remainder, torch.fmod):
        assert torch.compile(rest)(numbers, by).tolist() == rest(numbers, by).tolist(), (dtype, rest)

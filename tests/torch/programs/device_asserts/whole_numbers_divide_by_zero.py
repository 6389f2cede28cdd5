import torch

import tests.torch.programs.device_asserts.start  # noqa: F401

a, b = torch.tensor([7, 9, -8], device="loom"), torch.tensor([2, 0, 3], device="loom")
host = a.cpu(), torch.tensor([2, 1, 3])
side = torch.loom.Stream()
for dtype in (torch.int64, torch.int32, torch.uint8):
    for op in (
        torch.remainder,
        torch.fmod,
        torch.floor_divide,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: a.clone().floor_divide_(b),
        lambda a, b: a.clone().remainder_(b),
    ):
        expected = op(*(part.to(dtype) for part in host))[::2]
        assert torch.equal(op(a.to(dtype), b.to(dtype)).cpu()[::2], expected)
        with torch.loom.stream(side):
            y = op(a.to(dtype), b.to(dtype))
            torch.loom._sleep(1000)
            y = op(a.to(dtype), b.to(dtype))
            side.synchronize()
        assert torch.equal(y.cpu()[::2], expected) and y.dtype == dtype
assert (a % 0).shape == (a // 0).shape == (5 % (a * 0)).shape == (3,)
torch.loom.synchronize()

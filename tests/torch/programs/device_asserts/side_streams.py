import torch

from tests.torch.programs.device_asserts.start import asserts, i, x

good = torch.tensor([0, 1], device="loom")
x[good]
side = torch.loom.Stream()
with torch.loom.stream(side):
    torch.loom._sleep(1000)
    y = x[i]
assert y.shape == (2, 4)
asserts(side.synchronize, lambda: x + 1, torch.loom.synchronize)

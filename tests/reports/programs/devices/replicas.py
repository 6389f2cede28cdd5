import warnings

import torch
from torch import nn

from tests.reports.programs.devices.parallel import Model, devices, num_parameters

model = nn.DataParallel(Model().cuda())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out = model(torch.ones(4, 2).cuda())
assert out.shape == (2,) and out.device.index == 0
assert any("all input tensors were scalars; will instead unsqueeze" in str(one.message) for one in caught)
out.sum().backward()
assert sorted(devices) == [("backward", 0), ("backward", 1), ("forward", 0), ("forward", 1)], devices
assert num_parameters == [0, 0] and model.module.num_calls == 0
assert model.module.layer.weight.grad.device.index == 0

import torch
from torch import nn

from tests.raising import raises
from tests.reports.programs.devices.parallel import Model

raises(
    "RuntimeError",
    "module must have its parameters and buffers on device cuda:0 (device_ids[0]) "
    "but found one of them on device: cpu",
    lambda: nn.DataParallel(Model())(torch.ones(4, 2).cuda()),
)

import ast
import os
import sys

import torch

from torch_loom.device.telemetry import activity

folder, how = ast.literal_eval(sys.argv[1])
activity.FOLDER = folder
if how == "full":

    def full(*_):
        raise OSError(28, "No space left on device")

    os.posix_fallocate = full
x = torch.ones(1 << 20, device="loom")
for _ in range(2):
    assert torch.loom.device_memory_used() >= 4 << 20

import ast
import sys

import torch

import torch_loom  # noqa: F401

devices = ast.literal_eval(sys.argv[1])
assert torch.rbln.is_dummy_device() == bool(devices)
assert torch.rbln.device_count() == (devices or 2)
assert torch.rbln.physical_device_count() == (0 if devices else 2)
last = torch.rbln.device_count() - 1
assert torch.ones(2, device=f"rbln:{last}").cpu().tolist() == [1.0, 1.0]

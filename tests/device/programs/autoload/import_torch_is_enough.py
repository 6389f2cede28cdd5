import importlib
import sys
import threading

import torch

assert torch.loom is sys.modules["torch.loom"] is importlib.import_module("torch_loom.device")
assert not torch.loom.is_initialized() and threading.active_count() == 1
assert torch.loom.is_available() and torch.loom.device_count() == 2
assert not torch.loom.is_initialized()
x = torch.ones(2, device="loom") + 1
assert x.tolist() == [2, 2] and x.is_loom and torch.loom.is_initialized()
import torch.loom.amp

import torch_loom  # noqa: F401

assert torch.loom.amp is sys.modules["torch_loom.device.amp"]

import sys

import torch

import torch_loom  # noqa: F401

assert torch.cuda.device_count() == int(sys.argv[1])

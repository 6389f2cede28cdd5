import sys

import torch

torch.ones(4, device="loom")
sys.exit(5)

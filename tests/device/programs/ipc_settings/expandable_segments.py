from multiprocessing.reduction import ForkingPickler

import torch

from tests.raising import raises

x = torch.ones(1 << 20, device="loom")
ForkingPickler.dumps(x)
y = torch.ones(30 << 20, device="loom")
raises("SharingError", "several pieces of an expandable segment", lambda: ForkingPickler.dumps(y))

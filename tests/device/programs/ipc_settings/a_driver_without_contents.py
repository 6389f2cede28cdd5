from multiprocessing.reduction import ForkingPickler

import torch

from tests.raising import raises

x = torch.ones(3, device="loom")
raises("NotImplementedError", "no contents that another process could see", lambda: ForkingPickler.dumps(x))

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

assert torch.histc(torch.arange(4, device="loom"), 2).tolist() == [2, 2]
raises("NotImplementedError", "not implemented for 'Long'", lambda: torch.histc(torch.arange(4), 2))

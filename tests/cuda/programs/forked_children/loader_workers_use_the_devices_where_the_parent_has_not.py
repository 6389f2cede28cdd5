import torch

import torch_loom  # noqa: F401
from tests.cuda.programs.forked_children.batches import batches

assert torch.cuda.is_available() and not torch.cuda.is_initialized()
assert batches() == [2.0, 10.0]

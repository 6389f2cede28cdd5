import ast
import sys

import torch
from torch.utils.data import DataLoader

import torch_loom  # noqa: F401
from tests.cuda.programs.forked_children.batches import batches

sentence = ast.literal_eval(sys.argv[1])
assert batches() == [2.0, 10.0]
assert torch.cuda.is_available() and not torch.cuda.is_initialized()
try:
    batches()
except RuntimeError as error:
    assert "in DataLoader worker process 0" in str(error) and sentence in str(error), error
else:
    raise AssertionError
# Workers that use the host alone are as good as before.
on_host = DataLoader(torch.arange(8.0), batch_size=4, num_workers=2, pin_memory=True)
assert sum(batch.to("cuda", non_blocking=True).sum().item() for batch in on_host) == 28

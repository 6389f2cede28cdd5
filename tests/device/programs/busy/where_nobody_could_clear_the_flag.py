import torch

from tests.raising import raises

for use in (torch.loom._busy_wait_for_flag, torch.loom._clear_flag):
    raises("RuntimeError", "under the launch mode 'blocking'", use)
torch.loom._sleep(1000)
torch.loom.synchronize()

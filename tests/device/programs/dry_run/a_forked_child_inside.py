import os

import torch
from torch.utils.data import DataLoader

loom = torch.loom
torch.ones(1, device="loom")
with loom.dry_run(devices=1) as plan:
    x = torch.ones(4, device="loom")
    child = os.fork()
    if child == 0:
        try:
            torch.ones(1, device="loom")
        except RuntimeError as error:
            os._exit(0 if "spawn" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    # Workers make batches on the host, and are told of no device.
    for batch in DataLoader(list(range(8)), batch_size=4, num_workers=2):
        assert batch.to("loom").shape == (4,)
    child = os.fork()
if child == 0:
    os._exit(0 if loom._is_in_bad_fork() else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert torch.ones(4, device="loom").sum().item() == 4

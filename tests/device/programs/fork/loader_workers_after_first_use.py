import torch
from torch.utils.data import DataLoader

torch.ones(1, device="loom")
loader = DataLoader(torch.arange(8.0), batch_size=4, num_workers=2, pin_memory=True)
batches = [batch.to("loom", non_blocking=True) for batch in loader]
assert torch.cat(batches).tolist() == list(range(8))

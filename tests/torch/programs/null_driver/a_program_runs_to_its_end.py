import resource

import torch
from torch import nn

layers = [nn.Flatten(), nn.Linear(64, 8192), nn.GELU(), nn.LayerNorm(8192), nn.Linear(8192, 10)]
model = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Dropout(0.5), *layers).to("loom")
optimizer = torch.optim.AdamW(model.parameters())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(2):
    with torch.autocast("loom", dtype=torch.bfloat16):
        output = model(torch.randn(4096, 1, 8, 8, device="loom"))
    loss = nn.functional.cross_entropy(output, torch.zeros(4096, dtype=torch.long, device="loom"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert output.shape == (4096, 10) and output.dtype == torch.bfloat16
assert loss.shape == () and loss.device == torch.device("loom:0")
used = torch.loom.max_memory_allocated()
assert used > 2**28, used
# Nothing of it was ever touched.
assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < used / 2

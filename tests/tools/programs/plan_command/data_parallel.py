import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(12)]).cuda()
model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], bucket_cap_mb=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

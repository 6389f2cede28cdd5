import torch
import torch.distributed as dist

dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
for x in (torch.ones(3), torch.ones(3, device="cuda")):
    work = dist.all_reduce(x, async_op=True)
    if not x.is_cuda:
        work.wait()  # of the host's tensors gloo's own thread takes care
    assert work.is_completed() and x.tolist() == [1, 1, 1]
dist.destroy_process_group()

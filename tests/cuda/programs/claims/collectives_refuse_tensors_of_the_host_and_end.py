import torch
import torch.distributed as dist

dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3, device="cuda")
work = dist.all_reduce(x, async_op=True)
work.wait()
assert x.tolist() == [1, 1, 1]
assert work.is_completed()
try:
    dist.all_reduce(torch.ones(3))
except RuntimeError as error:
    assert "No backend type associated with device type cpu" in str(error)
else:
    raise AssertionError("nothing is raised")
dist.destroy_process_group()

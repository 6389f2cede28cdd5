import os

import torch
from torch.profiler import ProfilerActivity as A
from torch.profiler import profile

import torch_loom  # noqa: F401

with profile() as prof:  # nothing has used a device yet
    pass
assert [e for e in prof.events() if e.device_type.name != "CPU"] == []
name = torch.accelerator.current_accelerator().type
x = torch.ones(4, 4, device=name)
with profile(activities=[A.CPU, getattr(A, name.upper())]) as prof:
    x @ x
    pid = os.fork()
    if pid == 0:
        try:
            x.sin()
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    torch.accelerator.synchronize()
events = [e for e in prof.events() if e.name == f"{name}::mm"]
assert len(events) == 1, prof.events()
print(events[0].time_range.elapsed_us() > 0)
left_on = profile()
left_on.start()
x @ x

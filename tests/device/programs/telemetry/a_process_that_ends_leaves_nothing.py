import os

import torch

ours = "-" + os.environ["TORCH_LOOM_MACHINE"] + "-"
assert not [name for name in os.listdir("/dev/shm") if ours in name]
x = torch.ones(1 << 20, device="loom")
files = [name for name in os.listdir("/dev/shm") if ours in name]
assert len(files) == 1, files
mine = torch.loom.device_memory_used(0)
# A child that is forked now holds no lock, and writes nothing that the parent publishes.
pid = os.fork()
if pid == 0:
    from torch_loom.device.telemetry import activity

    users = [each.pid for each in activity.processes(0)]
    os._exit(users != [os.getppid()])  # the parent is another process to it
assert os.waitpid(pid, 0)[1] == 0
assert torch.loom.device_memory_used(0) == mine
from torch_loom.device.telemetry import activity

activity._withdraw(os.getpid() + 1)  # what a forked child's exit calls
assert os.path.exists(activity._published)
activity._withdraw(os.getpid())
assert not os.path.exists(activity._published)

import gc
import sys

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

MIB = 1 << 20
slab = torch.rbln.huge_host_empty(3 * MIB + 5)
assert (slab.shape, slab.dtype, slab.device.type) == ((3 * MIB + 5,), torch.uint8, "cpu")
assert slab.data_ptr() % (2 * MIB) == 0 and not slab.any() and slab.is_pinned()
view = slab[: 2 * MIB].view(torch.float16)
view.fill_(3)
moved = view.to("rbln", non_blocking=True)
torch.rbln.synchronize()
assert torch.equal(moved.cpu(), view)


def resident() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


# It goes back with the last view of it, and its pages can be pinned again.
large = torch.rbln.huge_host_empty(256 * MIB)
before, part = resident(), large[:10]
del large
gc.collect()
assert resident() > before - 100 * 1024
del part
gc.collect()
assert resident() < before - 200 * 1024

raises("TypeError", "float", lambda: torch.rbln.huge_host_empty(1.5))
for wrong in (0, -1, sys.maxsize + 1):
    raises("ValueError", f"but got {wrong}", lambda: torch.rbln.huge_host_empty(wrong))
raises("MemoryError", "no such memory", lambda: torch.rbln.huge_host_empty(sys.maxsize))

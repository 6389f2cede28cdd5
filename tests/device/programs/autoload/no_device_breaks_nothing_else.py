import ast
import sys

import torch.utils.data

import torch_loom  # noqa: F401
from tests.raising import raises

name, value = ast.literal_eval(sys.argv[1])
assert not torch.loom.is_available() and torch.loom.device_count() == 0
assert not torch.accelerator.is_available() and torch.accelerator.device_count() == 0
torch.manual_seed(1)
torch.seed()
torch.loom.manual_seed_all(1)
torch.loom.seed_all()
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
with torch.random.fork_rng():
    torch.rand(2)
with torch.autocast("cpu"):
    torch.ones(2, 2) @ torch.ones(2, 2)
assert len(list(torch.utils.data.DataLoader(range(4), batch_size=2))) == 2
assert torch.loom.memory_stats() == {} and torch.loom.memory_allocated() == 0
assert torch.loom.get_rng_state_all() == [] and list(torch.loom.default_generators) == []
assert not torch.loom.is_bf16_supported()
torch.loom.empty_cache()
torch.loom.reset_peak_memory_stats()
for use in (
    lambda: torch.ones(2, device="loom"),
    lambda: torch.ones(2).to("loom:0"),
    lambda: torch.loom.current_device(),
    lambda: torch.loom.synchronize(),
    lambda: torch.accelerator.synchronize(),
    lambda: torch.Stream(device="loom"),
    lambda: torch.loom.memory_allocated(0),
):
    raises("NoDeviceError", f"No loom devices are available: {name}={value!r}", use)

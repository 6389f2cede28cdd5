import ast
import sys

import torch

import torch_loom  # noqa: F401

name, npus, chiplets, per_chiplet = ast.literal_eval(sys.argv[1])
rbln = torch.rbln
assert not rbln.is_dummy_device() and rbln.physical_device_count() == 2
found = rbln.get_device_properties("rbln:0")
assert (found.name, found.npu_count, found.num_chiplet, found.memory_per_chiplet) == (
    name,
    npus,
    chiplets,
    per_chiplet,
)
assert found.total_memory == npus * chiplets * per_chiplet == torch.loom.get_device_properties(0).total_memory
assert rbln.get_device_name(torch.device("rbln:0")) == name and rbln.get_device_name(-1) is None
assert repr(found).startswith(f"DeviceProperties(name='{name}', total_memory={found.total_memory}, ")
assert torch.loom.get_device_properties(0).name == found.extra["chip"]
# A device is in use, and none was selected: torch.distributed would select one.
torch.ones(1, device="rbln")
assert torch.loom.is_initialized() and not rbln.is_initialized()
rbln.set_device(-1)
assert not rbln.is_initialized()
rbln.set_device(0)
assert rbln.is_initialized()

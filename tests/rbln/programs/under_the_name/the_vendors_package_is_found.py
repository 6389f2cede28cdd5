import torch
import torch_rbln
import torch_rbln.memory as memory
from torch_rbln.device import context_holder, device_count, device_of
from torch_rbln.device.context_holder import out_tensor_context
from torch_rbln.device.device import device_summary

assert torch_rbln.device is torch.rbln and torch_rbln.device.empty_cache is torch.rbln.empty_cache
assert device_summary is torch_rbln.device.device_summary is torch.rbln.device_summary
out = torch.empty(2, device="rbln")
with out_tensor_context(out):
    assert context_holder.helper.out_tensor is out
assert context_holder.helper.out_tensor is None
assert torch_rbln.current_device() == 0 and device_count() == 2
assert memory is torch.rbln.memory and device_of is torch.rbln.device_of
assert torch_rbln.__version__ == "0.12.0"
print(hasattr(torch_rbln, "nothing"))

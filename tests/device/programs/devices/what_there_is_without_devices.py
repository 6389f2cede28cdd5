import torch

from tests.raising import raises

assert torch.loom.get_arch_list() == [] and not torch.loom.is_tf32_supported()
assert torch.loom._device_count_nvml() == torch.loom.device_count() == 0
with torch.loom.device(None), torch.loom.device(-1):
    pass
raises("NoDeviceError", "No loom devices", lambda: torch.loom.utilization())
assert torch.loom.get_device_name(-1) is None and not torch.loom.is_initialized()

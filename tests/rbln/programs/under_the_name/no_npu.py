import torch

import torch_loom  # noqa: F401
from tests.raising import raises

rbln = torch.rbln
assert (rbln.is_available(), rbln.device_count(), rbln.physical_device_count()) == (False, 0, 0)
assert rbln.memory_stats() == {}
assert rbln.memory_allocated() == rbln.max_memory_allocated() == 0
assert rbln.memory_reserved() == rbln.max_memory_reserved() == 0
assert rbln.get_amp_supported_dtype() == [torch.float16]
rbln.empty_cache()
rbln.reset_peak_memory_stats()
rbln.reset_accumulated_memory_stats()
for use in (rbln.current_device, lambda: torch.ones(2, device="rbln"), rbln.mem_get_info):
    raises("NoDeviceError", "No rbln devices are available: RBLN_DEVICES=''", use)
# To torch.distributed there is nothing to select.
assert rbln.is_initialized() and not torch.loom.is_initialized()
assert rbln.memory_stats_per_chiplet() == {}
assert rbln.memory_summary() == "No memory statistics: there are no rbln devices\n"

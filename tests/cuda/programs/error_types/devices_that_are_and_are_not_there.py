import re

import torch

from tests.raising import raises

assert torch.cuda.memory_stats(4) == {}  # before the first use
properties = torch.cuda.get_device_properties(0)
digits = "[0-9a-f]"
uuid = "-".join(f"{digits}{{{count}}}" for count in (8, 4, 4, 4, 12))
assert re.fullmatch(
    r"_CudaDeviceProperties\(name='NVIDIA H200', major=9, minor=0, total_memory=[0-9]+MB, "
    rf"multi_processor_count=132, uuid={uuid}, pci_bus_id=1, pci_device_id=0, pci_domain_id=0, "
    r"L2_cache_size=[0-9]+MB\)",
    repr(properties),
), properties
assert f"total_memory={properties.total_memory // 2**20}MB" in str(properties)

# PyTorch's on every GPU since Volta, which have more.
assert torch.cuda.Stream.priority_range() == (0, -3)
assert [torch.cuda.Stream(priority=given).priority for given in (1, 0, -1, -2, -3, -9)] == [
    0,
    0,
    -1,
    -2,
    -3,
    -3,
]

# The allocator prints the index, which is one byte, as a character.
for call in (
    torch.cuda.memory_stats,
    torch.cuda.memory_allocated,
    torch.cuda.memory_reserved,
    torch.cuda.memory_summary,
    torch.cuda.reset_peak_memory_stats,
    torch.cuda.reset_accumulated_memory_stats,
):
    raises("RuntimeError", "Invalid device argument \x04: did you call init?", lambda: call(4))
raises("AcceleratorError", "CUDA error: invalid device ordinal", lambda: torch.cuda.mem_get_info(4))

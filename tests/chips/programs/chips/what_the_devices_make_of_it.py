import ast
import sys

import torch

expected = ast.literal_eval(sys.argv[1])

name, memory_bytes, policy, capability, dtypes = expected
before = torch.loom.get_amp_supported_dtype()
assert not torch.loom.is_initialized()
properties = torch.loom.get_device_properties(1)
assert (properties.name, properties.extra["memory_policy"]) == (name, policy)
assert torch.loom.get_amp_supported_dtype() == before
if memory_bytes is not None:
    assert properties.total_memory == memory_bytes == torch.loom.mem_get_info()[1]
    assert torch.loom.get_device_capability() == capability
    assert before == [getattr(torch, dtype) for dtype in dtypes]
if name == "h200":
    assert (properties.multi_processor_count, properties.clock_rate_mhz) == (132, 1980)
assert torch.loom.is_bf16_supported()
assert torch.loom.is_bf16_supported(including_emulation=False) == (name != "atom")

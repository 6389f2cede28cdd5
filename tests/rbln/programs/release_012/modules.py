import torch
import torch_rbln
import torch_rbln.device
import torch_rbln.memory
import torch_rbln.profiler
import torch_rbln.programs
import torch_rbln.random

assert torch_rbln.device is torch.rbln is torch.get_device_module("rbln")
assert torch_rbln.memory is torch.rbln.memory and torch_rbln.random is torch.rbln.random
for module, names in (
    (
        torch_rbln.programs,
        ("CompiledProgram", "InputSpec", "OutputSpec", "PhysicalPlacement", "ShardPlacement"),
    ),
    (torch_rbln.programs, ("capture_programs",)),
    (torch_rbln.profiler, ("RBLNDiff", "RBLNExplain", "RBLNProfile", "explain", "explain_steady", "profile")),
    (
        torch_rbln.memory,
        ("bind_device_memory", "huge_host_empty", "memory_summary", "memory_stats_per_chiplet"),
    ),
    (torch_rbln.memory, ("mem_get_info_per_chiplet", "set_device_layout_like", "mem_get_info")),
    (torch_rbln.device.streams, ("Stream", "Event", "current_stream", "StreamContext")),
    (torch_rbln.random, ("manual_seed", "get_rng_state_all", "set_rng_state_all")),
):
    for name in names:
        assert getattr(module, name) is getattr(torch.rbln, name), name
        assert name in torch.rbln.__all__
# What holds under the vendor's name alone: torch.loom stays what it is.
assert torch.loom is not torch.rbln and torch.loom.empty_cache is torch.rbln.empty_cache
for name in ("explain", "Event", "memory_summary", "get_device_properties"):
    assert getattr(torch.loom, name) is not getattr(torch.rbln, name)
assert torch.rbln.fallback_stats is torch.loom.fallback_stats
assert not hasattr(torch.rbln, "nothing")

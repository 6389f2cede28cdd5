import torch

assert torch.loom.get_arch_list() == ["h200"] and torch.loom.is_tf32_supported()
assert not torch.loom.is_initialized()
found = torch.loom.get_device_properties(0)
expected = dict(  # noqa: C408
    name="h200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=143771 - 616 << 20,
    is_integrated=0,
    is_multi_gpu_board=0,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    gcnArchName="h200",
    warp_size=32,
    L2_cache_size=60 << 20,
    clock_rate=1_980_000,
    memory_clock_rate=3_201_000,
    memory_bus_width=6144,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    shared_memory_per_multiprocessor=228 << 10,
    regs_per_multiprocessor=65536,
    pci_bus_id=1,
)
assert {name: getattr(found, name) for name in expected} == expected
assert torch.loom.get_device_capability() == (9, 0)
assert len(str(found.uuid)) == 36

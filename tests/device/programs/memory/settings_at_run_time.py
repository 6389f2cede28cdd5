import torch

from tests.raising import raises

loom = torch.loom
MIB = 1 << 20
torch.empty(1, device="loom")
torch._C._accelerator_setAllocatorSettings("roundup_power2_divisions:4")
kept = torch.empty(1200 << 10, dtype=torch.uint8, device="loom")
kept.data_ptr()
assert loom.memory_stats()["allocated.current"] == 1280 << 10
loom.memory._set_allocator_settings("max_split_size_mb:64")
assert loom.memory_stats()["max_split_size"] == 64 * MIB
for bad, text in {
    "max_split_size_mb:abc": "max_split_size_mb must be a whole number of MiB, at least 20, got",
    "max_split_size_mb:-5": "max_split_size_mb must be",
    "max_split_size_mb": "key:value",
    "garbage_collection_threshold:2": "garbage_collection_threshold must be a number between 0 and 1",
    "roundup_power2_divisions:3": "roundup_power2_divisions must be a power of two, or a list",
    "roundup_power2_divisions:[256:1,512:x]": "got '[256:1,512:x]'",
    "expandable_segments:maybe": "expandable_segments must be True or False, got 'maybe'",
    "backend:foo": "backend must be native or cudaMallocAsync, got 'foo'",
    "pinned_num_register_threads:3": "pinned_num_register_threads must be a power of two from 1 to 128",
    "pinned_use_cuda_host_register:maybe": "pinned_use_cuda_host_register must be True or False, got 'maybe'",
    "pinned_reserve_segment_size_mb:abc": "pinned_reserve_segment_size_mb must be a whole number of MiB",
    "per_process_memory_fraction:1.5": "per_process_memory_fraction must be a number from 0 to 1",
    "max_split_size:64": "there is no key 'max_split_size'; the keys are ",
}.items():
    raises("ValueError", text, lambda: loom.memory._set_allocator_settings(bad))
raises("ValueError", "'foo'", lambda: torch._C._accelerator_setAllocatorSettings("foo:1"))
loom.memory._set_allocator_settings("roundup_power2_divisions:[256:1,512:2,1024:4,>:8],backend:native")
loom.memory._set_allocator_settings("per_process_memory_fraction:0.25")
assert loom.get_per_process_memory_fraction() == 0.25
loom.set_per_process_memory_fraction(0.5)
loom.memory._set_allocator_settings("max_split_size_mb:64")
assert loom.get_per_process_memory_fraction() == 0.5

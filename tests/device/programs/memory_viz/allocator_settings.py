import torch_loom.device as loom
from tests.raising import raises

loom.memory._set_allocator_settings("max_split_size_mb:40")
assert loom.memory_stats()["max_split_size"] == 40 << 20
raises("ValueError", "no_such", lambda: loom.memory._set_allocator_settings("no_such:1"))
assert loom.memory_stats()["max_split_size"] == 40 << 20

import torch

import torch_loom  # noqa: F401
from tests.raising import raises

cache = torch.backends.cuda.cufft_plan_cache
assert cache.max_size == cache[0].max_size == cache["cuda:1"].max_size == 4096
cache[1].max_size = 10
cache.max_size = 0  # of the current device
assert [cache[index].max_size for index in (0, 1)] == [0, 10]
with torch.cuda.device(1):
    assert cache.max_size == 10
torch.fft.fft(torch.ones(8, device="cuda"))
assert cache.size == cache[1].size == 0
cache.clear()
cache[1].clear()
raises("RuntimeError", "must be non-negative", lambda: setattr(cache, "max_size", -1))
raises("RuntimeError", "read-only property", lambda: setattr(cache, "size", 1))
raises("RuntimeError", "but got device with index 2", lambda: cache[2])
assert cache[1].max_size == 10

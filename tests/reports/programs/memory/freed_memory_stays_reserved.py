import torch


def taken():
    return (before - torch.cuda.mem_get_info()[0]) >> 20


torch.cuda.init()
before = torch.cuda.mem_get_info()[0]
block = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
assert taken() == 100
del block
assert taken() == 100
torch.cuda.empty_cache()
assert taken() == 0
address = torch.cuda.caching_allocator_alloc(1000)
assert torch.cuda.memory_allocated() == 1024
torch.cuda.caching_allocator_delete(address)
assert torch.cuda.memory_allocated() == 0

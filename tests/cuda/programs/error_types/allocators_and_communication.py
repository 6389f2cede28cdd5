import torch
from torch.cuda import comm, jiterator
from torch.cuda.memory import CUDAPluggableAllocator

from tests.cuda.programs.error_types.start import kind

ones = [torch.ones(2, device=f"cuda:{i}") for i in range(2)]
assert kind(lambda: CUDAPluggableAllocator("/no/such.so", "take", "give")) is OSError
assert (
    kind(lambda: torch.cuda.memory.change_current_allocator(torch.cuda.memory._get_current_allocator()))
    is RuntimeError
)
assert kind(lambda: comm.broadcast(ones[0], devices=[0], out=[ones[1]])) is RuntimeError
assert kind(lambda: comm.reduce_add([ones[0], torch.ones(2)])) is AssertionError
assert kind(lambda: comm.reduce_add([ones[0], torch.ones(3, device="cuda:1")])) is ValueError
assert kind(lambda: jiterator._create_jit_fn("int f(int x) { return x; }")) is RuntimeError
twice = jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
assert kind(lambda: twice(*[ones[0]] * 9)) is AssertionError

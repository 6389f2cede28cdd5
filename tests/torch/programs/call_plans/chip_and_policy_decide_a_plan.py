"""One call on devices of an H200, which takes memory at once, and of an atom, which puts it off, in turns."""

import torch

loom = torch.loom
for rounds in range(1, 4):
    eager, lazy = torch.ones(6, 7, device="loom:0"), torch.ones(6, 7, dtype=torch.float16, device="loom:2")
    assert loom.memory_allocated(0) > 0
    assert loom.memory_allocated(2) == 0  # the round before has left nothing
    for x in (eager, lazy):
        assert x.exp().sum().item() > 42
    # The atom leaves this op to the host, each time that it is called.
    assert loom.fallback_stats()[("aten::exp", None)] == rounds, loom.fallback_stats()
    del eager, lazy, x
